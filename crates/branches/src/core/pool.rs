//! The pool: branches made beforehand, started, with sessions connected, waiting for a lease.
//!
//! What is to be done is a pure function of the entries, the wanted sizes and the newest template.
//! A refill goes in phases: all rows, then all snapshots, then all starts, then all sessions. Each
//! phase keeps the machine busy with one kind of work; mixing them makes every snapshot wait for
//! starts and every start for snapshots, which is where long tails come from.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use egret_base::Timestamp;

use crate::model::{BranchId, Preset, TemplateId};

/// How far an entry of the pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Its row is in the registry.
    Planned,
    /// Its files are cloned.
    Cold,
    /// Its postmaster accepts connections.
    Started,
    /// Its sessions are connected: it can be leased.
    Hot,
}

impl Stage {
    /// Every stage with its name, in order.
    pub const ALL: [(Stage, &'static str); 4] = [
        (Stage::Planned, "planned"),
        (Stage::Cold, "cold"),
        (Stage::Started, "started"),
        (Stage::Hot, "hot"),
    ];
}

/// One entry of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolEntry {
    /// Id of its branch.
    pub id: BranchId,
    /// Settings by purpose; with the template its class.
    pub preset: Preset,
    /// The template that it is a clone of.
    pub template: TemplateId,
    /// How far it is.
    pub stage: Stage,
}

/// What the plan depends on.
#[derive(Clone, Debug)]
pub struct PoolView<'a> {
    /// Every entry of all pools.
    pub entries: &'a [PoolEntry],
    /// The newest template of the source; entries of an older one are of no use any more.
    pub template: Option<TemplateId>,
    /// How many entries each preset should have.
    pub targets: &'a BTreeMap<Preset, u32>,
    /// How many entries may be added, as far as the volume and the limits go.
    pub room: u32,
}

/// The next phase of a refill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolCommand {
    /// Throw these away: their template is old, or there are too many.
    Retire(Vec<BranchId>),
    /// Clone the files of these entries.
    Clone(Vec<BranchId>),
    /// Start the postmasters of these entries.
    Start(Vec<BranchId>),
    /// Connect the warm sessions of these entries.
    Connect(Vec<BranchId>),
    /// Write rows for this many new entries.
    Plan(Preset, TemplateId, u32),
}

/// What is to be done next; `None` when the pool is as it should be. Asked again when that is done.
pub fn plan(view: &PoolView<'_>) -> Option<PoolCommand> {
    let retired: Vec<BranchId> = view
        .entries
        .iter()
        .filter(|entry| Some(entry.template) != view.template)
        .map(|entry| entry.id)
        .chain(surplus(view))
        .collect();
    if !retired.is_empty() {
        return Some(PoolCommand::Retire(retired));
    }
    for (stage, command) in PHASES {
        let entries = entries_at(view, stage);
        if !entries.is_empty() {
            return Some(command(entries));
        }
    }
    deficit(view)
}

/// What entries at each stage wait for; all of one stage go on together.
const PHASES: [(Stage, Phase); 3] = [
    (Stage::Planned, PoolCommand::Clone),
    (Stage::Cold, PoolCommand::Start),
    (Stage::Started, PoolCommand::Connect),
];

type Phase = fn(Vec<BranchId>) -> PoolCommand;

fn entries_at(view: &PoolView<'_>, stage: Stage) -> Vec<BranchId> {
    view.entries.iter().filter(|entry| entry.stage == stage).map(|entry| entry.id).collect()
}

/// Entries beyond the target of their preset, the least advanced first.
fn surplus(view: &PoolView<'_>) -> Vec<BranchId> {
    let mut ids = Vec::new();
    for preset in Preset::ALL {
        let target = view.targets.get(preset).copied().unwrap_or(0) as usize;
        let mut entries: Vec<&PoolEntry> = current_entries(view, *preset).collect();
        entries.sort_by_key(|entry| (entry.stage, entry.id));
        let excess = entries.len().saturating_sub(target);
        ids.extend(entries[..excess].iter().map(|entry| entry.id));
    }
    ids
}

fn deficit(view: &PoolView<'_>) -> Option<PoolCommand> {
    let template = view.template?;
    view.targets.iter().find_map(|(preset, target)| {
        let current_count =
            u32::try_from(current_entries(view, *preset).count()).unwrap_or(u32::MAX);
        let missing = target.saturating_sub(current_count).min(view.room);
        (missing > 0).then_some(PoolCommand::Plan(*preset, template, missing))
    })
}

/// Entries of a preset that a create could still get.
fn current_entries<'a>(
    view: &'a PoolView<'_>,
    preset: Preset,
) -> impl Iterator<Item = &'a PoolEntry> {
    view.entries
        .iter()
        .filter(move |entry| entry.preset == preset && Some(entry.template) == view.template)
}

/// How far back demand is remembered.
const DEMAND_MEMORY: Duration = Duration::from_secs(600);

/// Requests that come within this time have to be served from the pool as it is, for a refill takes
/// about as long.
const DEMAND_WINDOW: Duration = Duration::from_secs(10);

/// When branches that a pool could have served were asked for: requests by second, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    requests: BTreeMap<Preset, VecDeque<(Timestamp, u32)>>,
}

impl Demand {
    /// Notes a request, whether the pool could serve it or not.
    pub fn record_request(&mut self, preset: Preset, now: Timestamp) {
        let requests = self.requests.entry(preset).or_default();
        match requests.back_mut() {
            Some((second, count)) if now.since(*second) < Duration::from_secs(1) => *count += 1,
            _ => requests.push_back((now, 1)),
        }
        let is_old = |first: &(Timestamp, u32)| now.since(first.0) > DEMAND_MEMORY;
        while requests.front().is_some_and(is_old) {
            requests.pop_front();
        }
    }

    /// The most requests that came within [`DEMAND_WINDOW`] during [`DEMAND_MEMORY`].
    pub(crate) fn peak(&self, preset: Preset, now: Timestamp) -> u32 {
        let Some(requests) = self.requests.get(&preset) else {
            return 0;
        };
        let is_recent = |request: &&(Timestamp, u32)| now.since(request.0) <= DEMAND_MEMORY;
        let mut window: VecDeque<(Timestamp, u32)> = VecDeque::new();
        let (mut sum, mut peak) = (0_u32, 0);
        for (second, count) in requests.iter().filter(is_recent) {
            while let Some((first, expired_count)) = window.front()
                && second.since(*first) > DEMAND_WINDOW
            {
                sum -= expired_count;
                window.pop_front();
            }
            window.push_back((*second, *count));
            sum = sum.saturating_add(*count);
            peak = peak.max(sum);
        }
        peak
    }
}

/// How many entries a preset should have: what the user chose, else what recent demand asks for,
/// between the floor and the ceiling.
pub(crate) fn target_size(chosen: Option<u32>, peak: u32, floor: u32, ceiling: u32) -> u32 {
    chosen.unwrap_or_else(|| peak.min(ceiling).max(floor))
}

#[cfg(test)]
mod tests;
