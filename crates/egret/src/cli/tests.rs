//! The tree is sound, and what it refuses it refuses with a reason.

use super::*;

fn refused(arguments: &[&str]) -> String {
    let error = Cli::try_parse_from([&["egret"], arguments].concat()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn the_tree_is_sound() {
    command().debug_assert();
}

#[test]
fn a_branch_is_described_in_one_line() {
    let line = "branch create demo --from head --ttl 2h --durable --preset small --setting work_mem=64MB \
                --label ticket=42 --protected --json --set branches.count_max=3";
    let cli = Cli::try_parse_from(std::iter::once("egret").chain(line.split_whitespace())).unwrap();
    assert!(cli.global.json);
    assert_eq!(cli.global.set, [("branches.count_max".to_owned(), "3".to_owned())]);
    let Command::Branch(BranchCommand::Create(create)) = cli.command else {
        panic!("{:?}", cli.command);
    };
    assert_eq!(create.ttl, Some(ConfigDuration::secs(7_200)));
    assert_eq!(create.settings, [("work_mem".to_owned(), "64MB".to_owned())]);
    assert_eq!(create.labels, [("ticket".to_owned(), "42".to_owned())]);
    assert!(create.durable && create.protected);
}

#[test]
fn what_is_wrong_is_said() {
    let message = refused(&["branch", "create", "demo", "--ttl", "soon"]);
    assert!(message.contains("`soon` is not a duration such as"), "{message}");
    let message = refused(&["branch", "create", "demo", "--label", "x"]);
    assert!(message.contains("`x` is not of the form KEY=VALUE"), "{message}");
    let message = refused(&["branch", "expire", "demo"]);
    assert!(message.contains("--ttl <DURATION>"), "{message}");
    let message = refused(&["branch", "lsit"]);
    assert!(message.contains("a similar subcommand exists: 'list'"), "{message}");
}

#[test]
fn settings_may_stand_before_and_behind_the_command() {
    let typed = "egret --set a.b=1 branch connect x --set=c.d=2 --set e.f=3 -- --set";
    let sorted = move_settings_last(typed.split(' ').map(Into::into));
    let shown: Vec<_> = sorted.iter().map(|word| word.to_string_lossy()).collect();
    assert_eq!(
        shown.join(" "),
        "egret branch connect x --set a.b=1 --set=c.d=2 --set e.f=3 -- --set"
    );
}

#[test]
fn callbacks_are_listed_or_deleted() {
    let callbacks = |line: &str| {
        let words = std::iter::once("egret").chain(line.split_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Command::Queue(QueueCommand::Callbacks(callbacks)) => callbacks,
            other => panic!("{other:?}"),
        }
    };
    let listing = callbacks("queue callbacks --state dead");
    assert_eq!(listing.state.as_deref(), Some("dead"));
    assert!(listing.command.is_none());
    let deletion = callbacks("queue callbacks delete one two").command;
    let Some(CallbackCommand::Delete { ids }) = deletion else {
        panic!("{deletion:?}");
    };
    assert_eq!(ids, ["one", "two"]);
    let message = refused(&["queue", "callbacks", "delete"]);
    assert!(message.contains("<IDS>"), "{message}");
    refused(&["queue", "callbacks", "--state", "dead", "delete", "one"]);
}
