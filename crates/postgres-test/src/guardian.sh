# Waits for the end of the test process (end of input), then cleans the directory $1 up.
cat >/dev/null
directory=$(readlink -f "$1")
# Memory that servers share has a name outside of the directory, and a server that is killed leaves it behind.
shared=
kill_inside() {
    for process in /proc/[0-9]*; do
        case "$(readlink "$process/cwd" 2>/dev/null)" in
            "$directory" | "$directory"/*)
                shared="$shared $(sed -n 's|^.* \(/dev/shm/PostgreSQL\.[0-9]*\)$|\1|p' "$process/maps" 2>/dev/null | sort -u | tr '\n' ' ')"
                kill -9 "${process#/proc/}" 2>/dev/null
                ;;
        esac
    done
}
# Control groups for branches are named after the data directory, which is the test's directory or one in it.
base=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)$(sed -n 's/^0:://p' /proc/self/cgroup)
remove_groups() {
    for place in "$directory" "$directory"/*; do
        sum=$(printf %s "$place" | sha256sum)
        group="$base/egret-branches-${sum:0:16}"
        if [ -d "$group" ]; then rmdir "$group"/*/ "$group" 2>/dev/null; fi
    done
}
for attempt in $(seq 100); do
    kill_inside
    remove_groups
    loops=$(awk -v d="$directory/" 'index($2, d) == 1 && $1 ~ /^\/dev\/loop/ {print $1}' /proc/mounts)
    awk -v d="$directory/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r | while read -r mount; do
        umount "$mount" 2>/dev/null
    done
    for loop in $loops; do losetup -d "$loop" 2>/dev/null; done
    if ! grep -q " $directory/" /proc/mounts && rm -rf --one-file-system "$directory" 2>/dev/null; then
        rm -f $shared
        exit 0
    fi
    sleep 0.1
done
exit 1
