//! Commands taken apart, their order, and real runs of them.

use std::path::Path;

use clap::Parser;

use super::*;
use crate::sample;

fn words(command: &str) -> Vec<String> {
    PairCommand::parse(command).unwrap().with_out("r.json")
}

#[test]
fn a_command_is_split_as_a_shell_would_and_nothing_more() {
    assert_eq!(
        words(r#"egret bench sql --set 'a b' "c d" e\ f $HOME | cat; *"#),
        [
            "egret", "bench", "sql", "--set", "a b", "c d", "e f", "$HOME", "|", "cat;", "*",
            "--out", "r.json"
        ]
    );
}

#[test]
fn the_file_takes_its_place_or_goes_last() {
    assert_eq!(words("p --to={out} x"), ["p", "--to=r.json", "x"]);
    assert_eq!(words("p x"), ["p", "x", "--out", "r.json"]);
}

#[test]
fn what_is_no_command_is_refused() {
    assert!(PairCommand::parse("egret 'bench").is_err());
    assert!(PairCommand::parse("   ").is_err());
}

#[test]
fn a_password_is_not_shown() {
    let program = PairCommand::parse("egret bench sql --url postgres://me:hidden@h/db").unwrap();
    assert!(!program.redacted().contains("hidden"), "{}", program.redacted());
    let command = "ls --no-such-option --url=postgres://me:hidden@h/db";
    let error = run_measure(command, command, &[]).unwrap_err();
    assert!(error.contains("no-such-option") && !error.contains("hidden"), "{error}");
}

#[test]
fn each_side_is_first_in_half_of_the_pairs() {
    for seed in 0..20 {
        let orders = orders(10, seed);
        assert_eq!(orders.iter().filter(|order| order[0] == 0).count(), 5);
        for two in orders.chunks(2) {
            assert_ne!(two[0], two[1]);
        }
    }
    assert_ne!(orders(20, 1), orders(20, 2));
    assert_eq!(orders(3, 1).len(), 3);
}

#[derive(Parser, Debug)]
struct TestCli {
    #[command(flatten)]
    compare: CompareArgs,
}

/// The arguments of three pairs of these commands.
fn arguments(a: &str, b: &str, more: &[&str]) -> CompareArgs {
    let line = [&["compare", "--run", a, "--run", b, "--pairs", "3"], more].concat();
    TestCli::try_parse_from(line).unwrap().compare
}

/// `compare` with two commands.
fn run_measure(a: &str, b: &str, more: &[&str]) -> Result<[Vec<ResultFile>; 2], String> {
    let args = arguments(a, b, more);
    let measured = measure(&args, &mut |_| {}, &Interruption::new());
    measured.map_err(|error| format!("{error:#}"))
}

/// A command that writes `file` as its result.
fn copying(directory: &Path, name: &str, file: &ResultFile) -> String {
    let path = directory.join(name);
    file.write(&path).unwrap();
    format!("cp {} {{out}}", path.display())
}

#[test]
fn both_commands_run_as_often_as_asked_and_their_files_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let command = copying(directory.path(), "sample.json", &sample::file());
    let keep = directory.path().join("kept");
    let keep_text = keep.to_str().unwrap();
    let [a, b] = run_measure(&command, &command, &["--keep", keep_text]).unwrap();
    assert_eq!((a.len(), b.len()), (3, 3));
    assert_eq!(a[0], sample::file());
    assert!(keep.join("001-a.json").exists() && keep.join("003-b.log").exists());
    let again = run_measure(&command, &command, &["--keep", keep_text]).unwrap_err();
    assert!(again.contains("is not empty"), "{again}");
}

#[test]
fn a_command_that_fails_ends_the_comparison_with_its_words() {
    let directory = tempfile::tempdir().unwrap();
    let good = copying(directory.path(), "sample.json", &sample::file());
    for (command, reason) in [
        ("ls --no-such-option {out}", "no-such-option"),
        ("no-such-program-anywhere", "cannot run `no-such-program-anywhere`"),
        ("true", "wrote no result file"),
        ("cp /dev/null {out}", "is not complete JSON"),
    ] {
        let error = run_measure(&good, command, &[]).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn other_conditions_end_it_at_the_first_pair() {
    let directory = tempfile::tempdir().unwrap();
    let a = copying(directory.path(), "a.json", &sample::file());
    let mut other = sample::file();
    other.parameters.insert("branches".to_owned(), 25.into());
    let b = copying(directory.path(), "b.json", &other);
    let error = run_measure(&a, &b, &[]).unwrap_err();
    assert!(error.contains("parameters.branches: 100 in A, 25 in B"), "{error}");
    assert!(run_measure(&a, &b, &["--allow-different", "parameters"]).is_ok());
}

#[test]
fn what_may_differ_may_differ_from_run_to_run() {
    let first = sample::file();
    let mut grown = first.clone();
    let parameters = &mut grown.parameters;
    parameters.insert("items".to_owned(), 25.into());
    let results = [vec![first], Vec::new()];
    let refused = ensure_comparable(&results, &grown, 2, 0, &[]).unwrap_err().to_string();
    assert!(refused.contains("--allow-different parameters.items"), "{refused}");
    for allowed in ["parameters", "parameters.items"] {
        ensure_comparable(&results, &grown, 2, 0, &[allowed.to_owned()]).unwrap();
    }
}

#[test]
fn an_interruption_ends_the_command_that_runs() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let path = fifo.display();
    let command = format!("sh -c 'echo $$ > {path}; exec sleep 3600' {{out}}");
    let interrupted = Interruption::new();
    let args = arguments(&command, &command, &[]);
    thread::scope(|scope| {
        let measuring = scope.spawn(|| measure(&args, &mut |_| {}, &interrupted));
        // Opened for reading until the command runs.
        let pid = fs::read_to_string(&fifo).unwrap();
        interrupted.set("SIGTERM").unwrap();
        let error = measuring.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "interrupted by SIGTERM in pair 1");
        assert!(!Path::new("/proc").join(pid.trim()).exists());
    });
}

#[test]
fn one_command_is_not_enough() {
    let line = TestCli::try_parse_from(["compare", "--run", "true"]).unwrap();
    let error = measure(&line.compare, &mut |_| {}, &Interruption::new()).unwrap_err();
    assert!(error.to_string().contains("given 1 times"));
    for wrong in [
        &["compare"][..],
        &["compare", "a.json"],
        &["compare", "a.json", "b.json", "--run", "true"],
        &["compare", "a.json", "b.json", "--margin", "0"],
        &["compare", "--run", "a", "--run", "b", "--pairs", "0"],
    ] {
        assert!(TestCli::try_parse_from(wrong).is_err(), "{wrong:?}");
    }
}
