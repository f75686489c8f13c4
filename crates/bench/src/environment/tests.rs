//! Mounts and latencies are found; a machine describes itself.

use std::fs;
use std::path::Path;

use super::*;

#[test]
fn the_innermost_mount_counts() {
    let text = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:26 / /var rw,noatime shared:5 - xfs /dev/sdb1 rw,attr2
31 30 7:0 / /var/with\\040blank ro - btrfs /dev/loop0 rw,compress=zstd
nonsense
";
    let check = |path: &str, kind: &str, options: &str| {
        let found = machine::parse_mounts(text, Path::new(path)).unwrap();
        assert_eq!((found.kind.as_str(), found.options.as_str()), (kind, options), "{path}");
    };
    check("/srv/x", "ext4", "rw,relatime,errors=remount-ro");
    check("/var/lib", "xfs", "rw,noatime,attr2");
    check("/variable", "ext4", "rw,relatime,errors=remount-ro");
    check("/var/with blank/x", "btrfs", "ro,rw,compress=zstd");
}

#[test]
fn a_subvolume_is_measured_on_the_mount_that_holds_it() {
    let text = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
31 22 0:40 / /srv/data/volume rw,relatime - btrfs /dev/loop0 rw,subvolid=5,subvol=/
";
    let beside = |data_dir: &'static str| {
        let data_dir = Path::new(data_dir);
        let mount = machine::parse_mounts(text, data_dir).unwrap();
        mount.parent_of(data_dir).map(Path::to_path_buf)
    };
    // A subvolume is no mount: the kernel lists none for it.
    let source = beside("/srv/data/volume/source").unwrap();
    assert_eq!(source, Path::new("/srv/data/volume"));
    assert_eq!(beside("/srv/plain").unwrap(), Path::new("/srv"));
    let refused = beside("/srv/data/volume").unwrap_err().to_string();
    assert_eq!(refused, "/srv/data/volume is a mount point of its own");
}

#[test]
fn the_machine_describes_itself() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("data");
    fs::create_dir(&inner).unwrap();
    let subject = Subject { data_dir: Some(inner), ..Subject::default() };
    let environment = Machine::examine(&subject, 7).unwrap().environment;
    assert!(environment.fsync_ms.unwrap() > 0.0);
    assert!(environment.memory_bytes > 1 << 26);
    assert!(environment.cpus > 0);
    assert!(!environment.kernel.is_empty() && !environment.cpu_model.is_empty());
    assert_ne!(environment.file_system, "unknown");
    // No Egret is measured: the one that measures stands for it.
    assert_eq!(environment.binary_sha256.as_deref().map(str::len), Some(64));
    let generator = environment.generator.unwrap();
    assert_eq!(environment.binary_sha256, generator.binary_sha256);
    assert_eq!(environment.seed, 7);
}

#[test]
fn settings_of_a_branch_stand_beside_those_of_its_source() {
    let settings = |pairs: &[(&str, &str)]| {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        owned.collect::<std::collections::BTreeMap<_, _>>()
    };
    let mut facts = PostgresFacts {
        settings: settings(&[("shared_buffers", "16384 8kB")]),
        ..PostgresFacts::default()
    };
    facts.add_branch(settings(&[("fsync", "off"), ("shared_buffers", "2048 8kB")]));
    let expected = settings(&[
        ("branch.fsync", "off"),
        ("branch.shared_buffers", "2048 8kB"),
        ("shared_buffers", "16384 8kB"),
    ]);
    assert_eq!(facts.settings, expected);
}

#[test]
fn the_measured_egret_is_described_and_not_the_one_that_measures() {
    let measured = Program {
        version: "9.9.9".to_owned(),
        commit: "fedcba9876".to_owned(),
        binary_sha256: None,
        build_profile: "release".to_owned(),
    };
    let subject = Subject { egret: Some(measured.clone()), ..Subject::default() };
    let environment = Machine::examine(&subject, 7).unwrap().environment;
    assert_eq!(environment.egret_version, measured.version);
    assert_eq!(environment.egret_commit, measured.commit);
    assert_eq!(environment.binary_sha256, None);
    assert_eq!(environment.build_profile, measured.build_profile);
    let generator = environment.generator.unwrap();
    assert_eq!(generator, Program::current().unwrap());
    assert_ne!(generator, measured);
}

#[test]
fn a_busy_generator_and_busy_neighbours_are_warned_about() {
    let machine = Machine::examine(&Subject::default(), 1).unwrap();
    let mut observed = WindowObservation {
        started_at: jiff::Timestamp::UNIX_EPOCH,
        wall: Duration::from_secs(10),
        clock_jump: None,
        usage: Default::default(),
        profile: None,
    };
    observed.usage.own = Duration::from_secs(8);
    observed.usage.other = Duration::from_secs(100_000);
    let (environment, warnings) = machine.with_observation(&observed, 1);
    assert_eq!(environment.fsync_ms, None);
    assert_eq!(environment.generator_cpu, 0.8);
    let text = warnings.join("\n");
    assert!(text.contains("the generator used 0.80 of the 1 cores"), "{text}");
    assert!(text.contains("other processes used 10000.00 cores"), "{text}");
    let (_, warnings) = machine.with_observation(&observed, 2);
    assert!(!warnings.join("\n").contains("generator used"));
}
