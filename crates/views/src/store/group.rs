//! Refreshes views that read each other, in one transaction.

mod one;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Row};

use self::one::One;
use super::apply::Told;
use super::create::watch;
use super::footing::{FOOTING, Footing, learn};
use super::refresh::{
    Counts, LOCK, Order, Outcomes, Reached, Read, Refreshable, Refreshed, UNLOCK,
};
use super::standing::{STANDING, Standing, check, standing, standing_of};
use super::statements::{Answers, Flight, Query, Statements};
use super::{captures, immediate, registry};
use crate::core::immediate::lock;
use crate::error::ViewsError;

/// Views that are refreshed together.
pub struct Group<'a> {
    /// They, of which each comes after those that it reads.
    pub views: &'a [&'a Refreshable],
    /// What is to be done.
    pub order: Order<'a>,
    /// How long locks were waited for, in milliseconds.
    pub waited_ms: f64,
    /// The numbers of the locks that keep other refreshers out, …
    pub keys: Vec<i64>,
    /// … and whether these are held.
    pub is_locked: bool,
}

/// What became of a transaction.
enum Done<'a> {
    /// It is committed.
    Committed(Outcomes),
    /// These have to be computed anew, and are to be claimed before.
    IsAnew(Vec<&'a Refreshable>),
}

impl<'a> Group<'a> {
    /// Brings all of them from where they are to one snapshot.
    ///
    /// # Errors
    /// [`ViewsError`]: nothing has changed in any of them.
    pub async fn refresh(
        &mut self,
        client: &mut Client,
        statements: &mut Statements,
    ) -> Result<Outcomes, ViewsError> {
        let mut anew = Vec::new();
        // As time passes there is always something to do.
        let is_expected =
            self.order.is_expected || self.views.iter().any(|view| view.built.has_clock);
        if !is_expected && let Some(standing) = self.look(client, statements).await? {
            anew = anew_of(self.views, &standing);
            if anew.is_empty() && self.order.besides.compared.is_none() {
                return Ok(self.nothing(&standing));
            }
            self.claim(client, &anew).await?;
        }
        // Once more, where it is only seen behind the locks what is to be computed anew.
        loop {
            let done = self.transaction(client, statements, &anew).await;
            if !matches!(done, Ok(Done::Committed(_))) {
                // What went wrong says more than that this could not be rolled back.
                _ = client.batch_execute("ROLLBACK").await;
            }
            match done? {
                Done::Committed(outcomes) => return Ok(outcomes),
                // Somebody has altered one, or had one computed anew, while locks were waited for.
                Done::IsAnew(_) if !anew.is_empty() => return Err(ViewsError::SourceChanged),
                Done::IsAnew(now) => {
                    self.claim(client, &now).await?;
                    anew = now;
                }
            }
        }
    }

    /// Everything, in one transaction, which is to be rolled back unless it was committed.
    async fn transaction(
        &mut self,
        client: &Client,
        statements: &mut Statements,
        anew: &[&Refreshable],
    ) -> Result<Done<'a>, ViewsError> {
        let begun = Instant::now();
        let begin = self.begin(anew);
        let (standing, counts) = self.begun(client, statements, &begin).await?;
        self.waited_ms += begun.elapsed().as_secs_f64() * 1e3;
        let now = anew_of(self.views, &standing);
        let mut claimed = anew.iter().map(|view| &standing[&view.record.id]);
        if now.len() != anew.len() || !claimed.all(|one| one.is_claimed) {
            return Ok(Done::IsAnew(now));
        }
        let outcomes = self.within(client, statements, &standing, &counts).await?;
        Ok(Done::Committed(outcomes))
    }

    /// Locks what no other refresher may refresh; returns how the views stand if none of them has anything to see.
    async fn look(
        &mut self,
        client: &Client,
        statements: &mut Statements,
    ) -> Result<Option<BTreeMap<i64, Standing>>, ViewsError> {
        let begun = Instant::now();
        let views = self.views.iter();
        let each: Vec<String> = views.flat_map(|view| view.has_changes()).collect();
        let keys = self.keys.clone();
        let (ids, server) = (self.ids(), statements.server(client).await?);
        let footing = statements.footing(&ids);
        let (standing, values) = question(&ids, &server, footing.as_deref());
        // Looked at only where nothing has changed.
        let unchanged = match each.is_empty() {
            true => standing.to_owned(),
            false => format!("{standing} AND NOT ({})", each.join(" OR ")),
        };
        let queries: [Query<'_>; 2] = [(LOCK, &[&keys]), (&unchanged, &values)];
        let answers = statements.all(client, &queries).await?;
        self.waited_ms = begun.elapsed().as_secs_f64() * 1e3;
        let [locked, unchanged] = rows_of(answers)?;
        self.is_locked = true;
        self.check_place(&locked)?;
        if unchanged.is_empty() {
            return Ok(None);
        }
        let standing = match &footing {
            // What has become of them is looked at where they are refreshed.
            Some(footing) => match footing.standing(&unchanged) {
                Some(standing) => standing,
                None => return Ok(None),
            },
            None => self.learnt(client, statements, &unchanged).await?,
        };
        check(&standing, self.views)?;
        Ok(Some(standing))
    }

    fn ids(&self) -> Vec<i64> {
        self.views.iter().map(|view| view.record.id).collect()
    }

    /// Fails where the table of views is not the one in which these are.
    fn check_place(&self, locked: &[Row]) -> Result<(), ViewsError> {
        let there: Option<u32> = locked.first().and_then(|row| row.get(0));
        match self.order.table.is_none_or(|table| there == Some(table)) {
            true => Ok(()),
            false => Err(ViewsError::NotFound {
                name: self
                    .views
                    .iter()
                    .map(|view| view.record.name.to_string())
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
        }
    }

    /// Has changes kept for those that are about to be computed anew, and everything captured that is part of their tables.
    async fn claim(&self, client: &mut Client, anew: &[&Refreshable]) -> Result<(), ViewsError> {
        if anew.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = anew.iter().map(|view| view.record.id).collect();
        registry::claim(client, &ids).await?;
        for view in anew {
            watch_all(client, view).await?;
        }
        Ok(())
    }

    /// How the views stand when their tables are locked, and how much has changed, all in the snapshot that is read.
    async fn begun(
        &mut self,
        client: &Client,
        statements: &mut Statements,
        begin: &str,
    ) -> Result<(BTreeMap<i64, Standing>, Counts), ViewsError> {
        let ids = self.ids();
        let counts: Vec<String> = self.views.iter().flat_map(|view| view.counts()).collect();
        let counts = match counts.is_empty() {
            true => "SELECT WHERE false".to_owned(),
            false => counts.join(" UNION ALL "),
        };
        let keys = self.keys.clone();
        let before: [Query<'_>; 1] = [(LOCK, &[&keys])];
        let before = match self.is_locked {
            true => &before[..0],
            false => &before[..],
        };
        let server = statements.server(client).await?;
        let footing = statements.footing(&ids);
        let (asked, values) = question(&ids, &server, footing.as_deref());
        // What is done first takes no snapshot: whoever holds a lock is waited for before there is one.
        let flight = Flight {
            before,
            plain: begin,
            queries: &[(asked, &values), (&counts, &[])],
        };
        let mut answers = statements.fly(client, flight).await?;
        let of_queries = answers.split_off(before.len().min(answers.len()));
        if !self.is_locked {
            let [locked] = rows_of(answers)?;
            self.is_locked = true;
            self.check_place(&locked)?;
        }
        let [rows, counts] = rows_of(of_queries)?;
        let known = footing.as_ref().map(|footing| footing.standing(&rows));
        let standing = match known {
            Some(Some(standing)) => standing,
            Some(None) => {
                let values: [&(dyn ToSql + Sync); 2] = [&ids, &server];
                let rows = statements.query(client, STANDING, &values).await?;
                self.learnt(client, statements, &rows).await?
            }
            None => self.learnt(client, statements, &rows).await?,
        };
        check(&standing, self.views)?;
        if standing.values().any(|one| one.is_suspended) {
            return Err(ViewsError::SourceChanged);
        }
        let counted = counts.iter().map(|row| {
            let place = row.get::<_, i64>(1) as usize;
            ((row.get(0), place), (row.get(2), row.get(3)))
        });
        Ok((standing, counted.collect()))
    }

    /// How the views stand, which is remembered.
    async fn learnt(
        &self,
        client: &Client,
        statements: &mut Statements,
        rows: &[Row],
    ) -> Result<BTreeMap<i64, Standing>, ViewsError> {
        let standing = standing_of(rows)?;
        learn(client, statements, self.views, rows).await?;
        Ok(standing)
    }

    fn nothing(&self, standing: &BTreeMap<i64, Standing>) -> Outcomes {
        let each = self.views.iter().map(|view| {
            let standing = &standing[&view.record.id];
            let reached = Reached {
                snapshot: standing.seen.clone(),
                stamp: standing.stamp.clone(),
            };
            let refreshed = Refreshed {
                reached,
                is_nothing: true,
                waited_ms: self.waited_ms,
                took_ms: self.order.begun.elapsed().as_secs_f64() * 1e3,
                ..Refreshed::default()
            };
            (view.record.id, Ok(refreshed))
        });
        each.collect()
    }

    fn begin(&self, anew: &[&Refreshable]) -> String {
        let tables: BTreeSet<&str> = self.views.iter().flat_map(|view| view.tables()).collect();
        let tables: Vec<&str> = tables.into_iter().collect();
        let mut all = vec![
            "START TRANSACTION ISOLATION LEVEL REPEATABLE READ".to_owned(),
            captures::NO_WAIT.to_owned(),
            "SET LOCAL search_path = pg_catalog, egret, pg_temp".to_owned(),
        ];
        // Those who write what such a view reads are waited for, and wait.
        for view in anew.iter().filter_map(|view| view.record.own_capture()) {
            all.push(format!("LOCK TABLE {} IN EXCLUSIVE MODE", lock(view)));
            all.push(captures::BRIEFLY.to_owned());
        }
        for table in tables {
            all.push(format!("LOCK TABLE {table} IN ACCESS SHARE MODE"));
            // Whoever waits for the first must not be ended while others are waited for.
            all.push(captures::BRIEFLY.to_owned());
        }
        all.join("; ")
    }

    async fn within(
        &mut self,
        client: &Client,
        statements: &mut Statements,
        standing: &BTreeMap<i64, Standing>,
        counts: &Counts,
    ) -> Result<Outcomes, ViewsError> {
        let mut told = Told::default();
        let mut outcomes = Outcomes::new();
        for view in self.views {
            let id = view.record.id;
            let is_read = |other: &&Refreshable| other.views().any(|one| one == id);
            let is_told = view.record.is_followed() || self.views.iter().any(is_read);
            let one = One {
                view,
                standing: &standing[&id],
                counts,
                costs: self.order.costs.get(&id),
                is_told,
                compares: self
                    .order
                    .besides
                    .compared
                    .filter(|(view, _)| *view == id)
                    .map(|(_, compares)| compares),
                is_explained: self.order.besides.is_explained,
                limits: self.order.limits,
            };
            let outcome = match self.views.len() {
                1 => one.refresh(client, statements, &mut told).await,
                _ => one.apart(client, statements, &mut told).await,
            };
            let outcome = outcome.map(|refreshed| Refreshed {
                reached: Reached {
                    snapshot: standing[&id].seen.clone(),
                    stamp: standing[&id].stamp.clone(),
                },
                waited_ms: self.waited_ms,
                took_ms: self.order.begun.elapsed().as_secs_f64() * 1e3,
                ..refreshed
            });
            match outcome {
                // Alone it can only be given up as a whole.
                Err(error) if self.views.len() == 1 => return Err(error),
                outcome => outcomes.push((id, outcome)),
            }
        }
        for sink in &told.sinks {
            let delete = format!("DELETE FROM {sink}");
            client.batch_execute(&delete).await?;
        }
        self.finish(client, statements, &outcomes, standing).await?;
        Ok(outcomes)
    }

    async fn finish(
        &mut self,
        client: &Client,
        statements: &mut Statements,
        outcomes: &Outcomes,
        before: &BTreeMap<i64, Standing>,
    ) -> Result<(), ViewsError> {
        let reached = outcomes.iter();
        let reached: Vec<(i64, &Refreshed)> = reached
            .filter_map(|(id, outcome)| Some((*id, outcome.as_ref().ok()?)))
            .collect();
        let ids: Vec<i64> = reached.iter().map(|(id, _)| *id).collect();
        let stamps: Vec<&str> = reached
            .iter()
            .map(|(_, one)| one.reached.stamp.as_str())
            .collect();
        let has_clock: Vec<bool> = ids
            .iter()
            .map(|id| {
                let mut views = self.views.iter();
                views.any(|view| view.record.id == *id && view.built.has_clock)
            })
            .collect();
        let snapshot = reached
            .first()
            .map(|(_, one)| one.reached.snapshot.as_str());
        let values: [&(dyn ToSql + Sync); 4] = [&ids, &stamps, &snapshot, &has_clock];
        let mut queries: Vec<Query<'_>> = vec![(include_str!("sql/reached.sql"), &values)];
        let end: [Query<'_>; 2] = [("COMMIT", &[]), (UNLOCK, &[&self.keys])];
        let has_partitions = self.views.iter().any(|view| view.has_partitions);
        if !has_partitions {
            queries.extend(end);
        }
        let answers = statements.all(client, &queries).await?;
        answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        // A partition that came meanwhile was read, or was not: it is not known which. Of tables without such all that matters is locked.
        if has_partitions {
            let after = standing(client, statements, self.views).await?;
            let is_same = |view: &&&Refreshable| {
                let id = view.record.id;
                after[&id].stamp == before[&id].stamp
                    && after[&id].signature == before[&id].signature
            };
            if !self.views.iter().all(|view| is_same(&view)) {
                return Err(ViewsError::SourceChanged);
            }
            let answers = statements.all(client, &end).await?;
            answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        }
        self.is_locked = false;
        Ok(())
    }
}

/// What is asked of how views stand, with its values: the less, where it is known what was found when that was looked at as a whole.
fn question<'a>(
    ids: &'a Vec<i64>,
    server: &'a String,
    footing: Option<&'a Footing>,
) -> (&'static str, Vec<&'a (dyn ToSql + Sync)>) {
    match footing {
        Some(footing) => (FOOTING, vec![ids, &footing.tables, &footing.inlined]),
        None => (STANDING, vec![ids, server]),
    }
}

/// Those that are to be computed anew.
fn anew_of<'a>(
    views: &[&'a Refreshable],
    standing: &BTreeMap<i64, Standing>,
) -> Vec<&'a Refreshable> {
    let views = views.iter();
    let anew = views.filter(|view| standing[&view.record.id].reached.is_none());
    anew.copied().collect()
}

/// The rows of as many queries.
fn rows_of<const COUNT: usize>(answers: Answers) -> Result<[Vec<Row>; COUNT], ViewsError> {
    let mut all = [const { Vec::new() }; COUNT];
    for (rows, answer) in all.iter_mut().zip(answers) {
        *rows = answer?;
    }
    Ok(all)
}

/// Has everything captured that is part of the tables of a view now, one table after the other: locks on several could be
/// waited for in a circle.
async fn watch_all(client: &mut Client, view: &Refreshable) -> Result<(), ViewsError> {
    if view.record.own_capture().is_some() {
        // What was wrong may be its functions.
        let transaction = client.transaction().await?;
        let (built, reads) = (&view.built, &view.reads);
        immediate::install(&transaction, &view.record, built, reads).await?;
        transaction.commit().await?;
    }
    for read in &view.reads {
        if let Read::Table { oid, captured } = read {
            let transaction = client.transaction().await?;
            watch(&transaction, captured, *oid).await?;
            transaction.commit().await?;
        }
    }
    Ok(())
}
