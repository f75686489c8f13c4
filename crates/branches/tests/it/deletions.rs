//! Files of unused templates are deleted a few at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use egret_base::Timestamp;
use egret_base_test::eventually;
use egret_branches::model::{Template, TemplateId};
use egret_branches::{CrashPoints, DELETIONS_MAX};

use crate::home::Home;

/// How many templates are there to be deleted.
const TEMPLATES: u8 = 14;

/// Counts the templates whose files are being deleted. The first few wait for each other.
struct Deletions {
    begun: AtomicUsize,
    present: AtomicUsize,
    most: AtomicUsize,
    first: Barrier,
}

impl CrashPoints for Deletions {
    fn before(&self, step: &'static str) {
        match step {
            "template.files" => {
                let present = self.present.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(present, Ordering::SeqCst);
                if self.begun.fetch_add(1, Ordering::SeqCst) < DELETIONS_MAX {
                    self.first.wait();
                }
            }
            "template.socket" => {
                self.present.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_deleted_a_few_at_a_time() {
    let home = Home::new("deletions");
    let egret = home.start().await;
    egret.make_app().await;
    let branch = egret.branch("one").await;
    // Old templates that the registry does not know: the next start finds them by their manifests.
    let templates = home.directory.join("volume/templates");
    let used = templates.join(branch.template.hex());
    let manifest = std::fs::read(used.with_extension("json")).unwrap();
    let used: Template = serde_json::from_slice(&manifest).unwrap();
    for number in 0..TEMPLATES {
        let taken_at = Timestamp::from_micros(number.into());
        let old =
            Template { id: TemplateId::new(taken_at, [number; 10]), taken_at, ..used.clone() };
        let data = templates.join(old.id.hex());
        std::fs::create_dir(&data).unwrap();
        let manifest = serde_json::to_vec(&old).unwrap();
        std::fs::write(data.with_extension("json"), manifest).unwrap();
    }
    egret.stop().await;
    let deletions = Arc::new(Deletions {
        begun: AtomicUsize::new(0),
        present: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        first: Barrier::new(DELETIONS_MAX),
    });
    let egret = home.start_with(Some(deletions.clone())).await;
    // The one in use and, of the others, the newest.
    eventually("old templates are deleted", async || {
        egret.branches.templates("default").unwrap().len() <= 2
    })
    .await;
    assert_eq!(deletions.begun.load(Ordering::SeqCst), usize::from(TEMPLATES) - 1);
    assert_eq!(deletions.most.load(Ordering::SeqCst), DELETIONS_MAX);
    egret.assert_consistent().await;
    egret.stop().await;
}
