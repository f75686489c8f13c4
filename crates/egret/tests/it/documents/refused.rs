//! What the guide says is refused is refused.

use rustix::process::Signal;

use super::{DocumentsClient, beside};

/// A request of the guide, and what it says is answered.
struct Example {
    line: String,
    headers: Vec<(String, String)>,
    body: String,
    answer: String,
}

fn examples(page: &str) -> Vec<Example> {
    let blocks = page.split("```http\n").skip(1);
    let text =
        blocks.filter_map(|block| block.split("```").next()).collect::<Vec<&str>>().join("\n");
    let mut all = Vec::new();
    for part in text.split("\n\n").map(str::trim).filter(|part| !part.is_empty()) {
        let (asked, answer) = part.split_once("→ ").unwrap();
        let mut lines = asked.lines();
        let mut example = Example {
            line: lines.next().unwrap().to_owned(),
            headers: Vec::new(),
            body: String::new(),
            answer: answer.to_owned(),
        };
        for line in lines {
            match line.split_once(": ") {
                Some((name, value)) if example.body.is_empty() && !line.starts_with('{') => {
                    example.headers.push((name.to_owned(), value.to_owned()));
                }
                _ => example.body.push_str(line),
            }
        }
        all.push(example);
    }
    all
}

#[test]
fn each_refusal_of_the_guide_is_as_it_says() {
    let page = include_str!("../../../../../docs/guide/document-errors.md");
    let (_external, place, server) = beside("document-errors");
    let door = DocumentsClient::of(&place);
    let mut named: Vec<(String, String)> = Vec::new();
    let examples = examples(page);
    assert!(examples.len() > 20);
    for example in examples {
        let fill = |text: &str| {
            named.iter().fold(text.to_owned(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value)
            })
        };
        let (method, path) = example.line.split_once(" /v1/").unwrap();
        let mut request = door.request(method.parse().unwrap(), &fill(path));
        for (name, value) in &example.headers {
            request = request.header(name, fill(value));
        }
        if !example.body.is_empty() {
            let body = fill(&example.body);
            request = request.header("content-type", "application/json").body(body);
        }
        let answer = door.send(request);
        let line = &example.line;
        let (status, told) = example.answer.split_once(' ').unwrap_or((&example.answer, ""));
        assert_eq!(answer.status.to_string(), status, "{line}: {}", answer.body);
        if answer.status >= 400 {
            assert_eq!(answer.json()["code"], told, "{line}: {}", answer.body);
            continue;
        }
        for told in told.split(", ") {
            match told.split_once(' ') {
                Some(("id", name)) => named.push((name.to_owned(), answer.id())),
                Some(("etag", name)) => named.push((name.to_owned(), answer.etag())),
                _ => assert_eq!(told, "", "{line}"),
            }
        }
    }
    server.stop(Signal::INT);
}
