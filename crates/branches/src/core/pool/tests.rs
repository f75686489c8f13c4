//! What a pool needs next, and a simulated world in which everything goes wrong at any moment.

use std::collections::{BTreeMap, BTreeSet};

use egret_base::{Entropy, SeededEntropy, Timestamp};

use super::*;
use crate::core::reconcile::{DiskSurvey, Repair, reconcile};
use crate::model::{
    Branch, BranchSource, BranchState, NewBranch, SourceIdentity, Template, TemplateState,
};

fn template_id(number: u8) -> TemplateId {
    TemplateId::new(Timestamp::from_micros(i64::from(number)), [number; 10])
}

fn entry(number: u8, stage: Stage) -> PoolEntry {
    PoolEntry {
        id: BranchId::new(Timestamp::from_micros(i64::from(number)), [number; 10]),
        preset: Preset::Small,
        template: template_id(1),
        stage,
    }
}

fn next(entries: &[PoolEntry], target: u32, room: u32) -> Option<PoolCommand> {
    plan(&PoolView {
        entries,
        template: Some(template_id(1)),
        targets: &BTreeMap::from([(Preset::Small, target)]),
        room,
    })
}

#[test]
fn a_refill_goes_phase_by_phase() {
    let planned = PoolCommand::Plan(Preset::Small, template_id(1), 3);
    assert_eq!(next(&[], 3, 10), Some(planned));
    let mut entries = [1, 2, 3].map(|number| entry(number, Stage::Planned));
    let ids = entries.map(|entry| entry.id).to_vec();
    let phases = [
        (Stage::Cold, PoolCommand::Clone(ids.clone())),
        (Stage::Started, PoolCommand::Start(ids.clone())),
        (Stage::Hot, PoolCommand::Connect(ids)),
    ];
    for (stage, expected) in phases {
        assert_eq!(next(&entries, 3, 10), Some(expected));
        entries.iter_mut().for_each(|entry| entry.stage = stage);
    }
    assert_eq!(next(&entries, 3, 10), None);
}

#[test]
fn no_start_while_a_clone_is_missing() {
    let entries = [entry(1, Stage::Cold), entry(2, Stage::Planned)];
    let expected = PoolCommand::Clone(vec![entries[1].id]);
    assert_eq!(next(&entries, 2, 10), Some(expected));
}

#[test]
fn entries_of_an_old_template_and_those_too_many_go() {
    let hot = [entry(1, Stage::Hot), entry(2, Stage::Cold)];
    assert_eq!(next(&hot, 1, 10), Some(PoolCommand::Retire(vec![hot[1].id])));
    let mut old = entry(3, Stage::Hot);
    old.template = template_id(0);
    assert_eq!(next(&[old], 1, 10), Some(PoolCommand::Retire(vec![old.id])));
}

#[test]
fn room_bounds_what_is_added() {
    let planned = PoolCommand::Plan(Preset::Small, template_id(1), 2);
    assert_eq!(next(&[], 5, 2), Some(planned));
    assert_eq!(next(&[], 5, 0), None);
}

#[test]
fn demand_is_the_busiest_ten_seconds_of_the_last_ten_minutes() {
    let at = |second: i64| Timestamp::from_micros(second * 1_000_000);
    let mut demand = Demand::default();
    for second in [0, 1, 2, 100, 105, 109, 110, 121, 300] {
        demand.record_request(Preset::Small, at(second));
    }
    assert_eq!(demand.peak(Preset::Small, at(300)), 4);
    assert_eq!(demand.peak(Preset::Large, at(300)), 0);
    assert_eq!(demand.peak(Preset::Small, at(715)), 1);
    assert_eq!(demand.peak(Preset::Small, at(1_000)), 0);
    assert_eq!(target_size(None, 4, 2, 16), 4);
    assert_eq!(target_size(None, 40, 2, 16), 16);
    assert_eq!(target_size(None, 0, 2, 16), 2);
    assert_eq!(target_size(Some(0), 9, 2, 16), 0);
}

/// What survives a crash of Egret, and what does not.
struct World {
    entropy: SeededEntropy,
    rows: Vec<Branch>,
    templates: Vec<Template>,
    files: BTreeSet<BranchId>,
    postmasters: BTreeSet<BranchId>,
    /// Memory: gone with the process.
    entries: Vec<PoolEntry>,
    /// Out of the pool, though the registry could not be told yet.
    stranded: Vec<BranchId>,
    targets: BTreeMap<Preset, u32>,
    /// Branches whose lease was acknowledged and that were not destroyed yet.
    leased: BTreeSet<BranchId>,
    made: u64,
    room: u32,
}

struct Crash;

const ROOM: u32 = 12;

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            entropy: SeededEntropy::new(seed),
            rows: Vec::new(),
            templates: Vec::new(),
            files: BTreeSet::new(),
            postmasters: BTreeSet::new(),
            entries: Vec::new(),
            stranded: Vec::new(),
            targets: BTreeMap::from([(Preset::Small, 4), (Preset::Large, 2)]),
            leased: BTreeSet::new(),
            made: 0,
            room: ROOM,
        };
        world.refresh();
        world
    }

    fn below(&self, bound: u64) -> u64 {
        let bytes = self.entropy.ten_bytes();
        u64::from_le_bytes(bytes[..8].try_into().unwrap()) % bound
    }

    /// Now and then the process ends before a step.
    fn step(&self) -> Result<(), Crash> {
        if self.below(40) == 0 { Err(Crash) } else { Ok(()) }
    }

    fn refresh(&mut self) {
        self.made += 1;
        let now = Timestamp::from_micros(self.made as i64);
        self.templates.push(Template {
            id: TemplateId::new(now, self.entropy.ten_bytes()),
            state: TemplateState::Ready,
            origin_branch: None,
            tenant: None,
            origin_branch_name: None,
            source: SourceIdentity { name: "main".into(), system_identifier: "1".into() },
            lsn: "0/0".into(),
            taken_at: now,
            postgres_major: 18,
            preload_libraries: String::new(),
            phases: vec![],
            losses: None,
            superuser: false,
        });
    }

    fn newest(&self) -> TemplateId {
        self.templates.last().expect("one was made first").id
    }

    fn row(&mut self, preset: Preset, template: TemplateId) -> Branch {
        self.made += 1;
        let now = Timestamp::from_micros(self.made as i64);
        let asked = NewBranch::named(format!("pool-{}", self.made).parse().unwrap());
        Branch {
            id: BranchId::new(now, self.entropy.ten_bytes()),
            tenant: String::new(),
            name: asked.name,
            state: BranchState::Pooled,
            template,
            parent_branch: None,
            from: BranchSource::NewestTemplate,
            preset,
            durable: false,
            superuser: false,
            role_passwords: false,
            waits_for_room: false,
            notice: None,
            protected: false,
            settings: BTreeMap::new(),
            labels: BTreeMap::new(),
            created_at: now,
            ttl_ms: None,
            expires_at: None,
            failure: None,
            receipt: None,
            boot_id: Some("boot".into()),
            postmaster: None,
        }
    }

    fn state(&mut self, id: BranchId) -> &mut BranchState {
        let row = self.rows.iter_mut().find(|row| row.id == id);
        &mut row.expect("a row for everything that is done").state
    }

    /// Carries out what the plan says, as the engine does it; `false` when nothing is to be done.
    fn refill(&mut self) -> Result<bool, Crash> {
        let room = self.room.saturating_sub(self.entries.len() as u32);
        let command = plan(&PoolView {
            entries: &self.entries,
            template: Some(self.newest()),
            targets: &self.targets,
            room,
        });
        let Some(command) = command else {
            return Ok(false);
        };
        match command {
            PoolCommand::Retire(ids) => {
                for id in ids {
                    self.entries.retain(|entry| entry.id != id);
                    self.step()?;
                    self.discard(id);
                }
            }
            PoolCommand::Plan(preset, template, count) => {
                assert!(count <= room, "more than there is room for");
                self.step()?;
                for _ in 0..count {
                    let row = self.row(preset, template);
                    let stage = Stage::Planned;
                    let id = row.id;
                    self.rows.push(row);
                    self.entries.push(PoolEntry { id, preset, template, stage });
                }
            }
            PoolCommand::Clone(ids) => self.advance(&ids, Stage::Cold)?,
            PoolCommand::Start(ids) => self.advance(&ids, Stage::Started)?,
            PoolCommand::Connect(ids) => self.advance(&ids, Stage::Hot)?,
        }
        Ok(true)
    }

    fn advance(&mut self, ids: &[BranchId], stage: Stage) -> Result<(), Crash> {
        for id in ids {
            self.step()?;
            match stage {
                Stage::Cold => self.files.insert(*id),
                Stage::Started => self.postmasters.insert(*id),
                Stage::Planned | Stage::Hot => true,
            };
            self.step()?;
            let entry = self.entries.iter_mut().find(|entry| entry.id == *id);
            entry.expect("only what is in the pool advances").stage = stage;
        }
        Ok(())
    }

    fn lease(&mut self) -> Result<(), Crash> {
        let preset = if self.below(3) == 0 { Preset::Large } else { Preset::Small };
        let newest = self.newest();
        let hot = |entry: &PoolEntry| {
            entry.stage == Stage::Hot && entry.preset == preset && entry.template == newest
        };
        let Some(at) = self.entries.iter().position(hot) else {
            return Ok(());
        };
        let id = self.entries.remove(at).id;
        self.step()?;
        assert_eq!(*self.state(id), BranchState::Pooled, "leased twice");
        *self.state(id) = BranchState::Running;
        // The answer may be lost with the process; then only the registry knows of the branch.
        self.step()?;
        assert!(self.leased.insert(id));
        Ok(())
    }

    fn destroy(&mut self) -> Result<(), Crash> {
        let Some(id) = self.leased.iter().nth(self.below(4) as usize).copied() else {
            return Ok(());
        };
        self.leased.remove(&id);
        *self.state(id) = BranchState::Destroying;
        Ok(())
    }

    /// Now and then the registry cannot be written.
    fn discard(&mut self, id: BranchId) {
        if self.below(8) == 0 {
            self.stranded.push(id);
        } else {
            *self.state(id) = BranchState::Destroying;
        }
    }

    fn purge(&mut self) -> Result<(), Crash> {
        for id in std::mem::take(&mut self.stranded) {
            self.discard(id);
        }
        let leaving: Vec<BranchId> = self
            .rows
            .iter()
            .filter(|row| row.state == BranchState::Destroying)
            .map(|row| row.id)
            .collect();
        for id in leaving {
            self.step()?;
            self.postmasters.remove(&id);
            self.step()?;
            self.files.remove(&id);
            self.step()?;
            self.rows.retain(|row| row.id != id);
        }
        Ok(())
    }

    /// A postmaster of the pool is killed.
    fn kill(&mut self) {
        let Some(entry) = self.entries.iter().find(|entry| entry.stage >= Stage::Started) else {
            return;
        };
        let id = entry.id;
        self.postmasters.remove(&id);
        self.entries.retain(|entry| entry.id != id);
        self.discard(id);
    }

    /// Sessions of a hot entry end.
    fn disconnect(&mut self) {
        let hot = |entry: &&mut PoolEntry| entry.stage == Stage::Hot;
        if let Some(entry) = self.entries.iter_mut().find(hot) {
            entry.stage = Stage::Started;
        }
    }

    fn act(&mut self) -> Result<(), Crash> {
        match self.below(12) {
            0..=3 => self.lease()?,
            4..=5 => self.destroy()?,
            6 => self.purge()?,
            7 if self.below(5) == 0 => self.refresh(),
            8 if self.below(5) == 0 => {
                let size = self.below(6) as u32;
                self.targets.insert(Preset::Small, size);
            }
            9 if self.below(2) == 0 => self.kill(),
            9 => self.disconnect(),
            10 if self.below(5) == 0 => self.room = self.below(u64::from(ROOM) + 1) as u32,
            _ => {
                self.refill()?;
            }
        }
        Ok(())
    }

    /// A new process finds what the old one left.
    fn restart(&mut self) {
        self.entries.clear();
        self.stranded.clear();
        let disk = DiskSurvey {
            branches: self.files.clone(),
            postmasters: self.postmasters.clone(),
            templates: self.templates.iter().map(|template| template.id).collect(),
            boot_id: "boot".into(),
            ..DiskSurvey::default()
        };
        for repair in reconcile(&self.rows, &self.templates, &disk) {
            match repair {
                Repair::Discard(id) => *self.state(id) = BranchState::Destroying,
                Repair::Start(id) => {
                    self.postmasters.insert(id);
                }
                Repair::Adopt(id) => assert!(self.postmasters.contains(&id)),
                other => panic!("nothing of this world needs {other:?}"),
            }
        }
    }

    fn check(&self) {
        for id in self.files.iter().chain(&self.postmasters) {
            assert!(self.rows.iter().any(|row| row.id == *id), "{id} belongs to no row");
        }
        for id in &self.leased {
            let row = self.rows.iter().find(|row| row.id == *id);
            let state = row.map(|row| row.state);
            assert_eq!(state, Some(BranchState::Running), "a leased branch is lost");
            assert!(self.files.contains(id));
        }
        for entry in &self.entries {
            let row = self.rows.iter().find(|row| row.id == entry.id);
            let state = row.map(|row| row.state);
            assert_eq!(state, Some(BranchState::Pooled), "an entry is not in the pool");
        }
        for row in &self.rows {
            let owned = self.entries.iter().any(|entry| entry.id == row.id)
                || self.stranded.contains(&row.id);
            assert!(owned || row.state != BranchState::Pooled, "nobody has it");
        }
        assert!(self.entries.len() <= ROOM as usize);
    }

    /// Without further crashes the pool gets what it should have and nothing is left behind.
    fn settle(&mut self) {
        self.room = ROOM;
        for _ in 0..1_000 {
            if self.purge().is_err() || self.refill().is_err() {
                self.restart();
            }
            self.check();
            let leaving = |row: &Branch| row.state == BranchState::Destroying;
            let full = self.targets.iter().all(|(preset, target)| {
                let hot = |entry: &&PoolEntry| entry.preset == *preset && entry.stage == Stage::Hot;
                self.entries.iter().filter(hot).count() == *target as usize
            });
            if full && !self.rows.iter().any(leaving) {
                let running = |row: &&Branch| row.state == BranchState::Running;
                let expected = self.entries.len() + self.rows.iter().filter(running).count();
                assert_eq!((self.files.len(), self.rows.len()), (expected, expected));
                return;
            }
        }
        panic!("the pool does not get what it should have");
    }
}

#[test]
fn the_pool_comes_back_from_anything() {
    for seed in 0..400 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..400 {
            if world.act().is_err() {
                world.restart();
            }
            world.check();
        }
        world.settle();
    }
}
