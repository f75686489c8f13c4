//! What is written is read, whatever it is.

use egret_queue::Format;
use egret_queue::core::command::{Command, Defer, Enqueue, PutSchedule, TaskReport};
use egret_queue::model::{
    Backoff, Jitter, Lease, QueueSettings, Retention, RetryPolicy, TaskId, TaskOptions,
};
use egret_queue::testing::content::{self, Content, Private};
use egret_queue::testing::record;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

fn retry() -> impl Strategy<Value = RetryPolicy> {
    let backoff =
        prop_oneof![Just(Backoff::Fixed), Just(Backoff::Linear), Just(Backoff::Exponential)];
    let jitter = prop_oneof![Just(Jitter::None), Just(Jitter::Full), Just(Jitter::Equal)];
    (backoff, jitter, any::<(u64, u64)>()).prop_map(|(backoff, jitter, (base_ms, max_ms))| {
        RetryPolicy { backoff, base_ms, max_ms, jitter }
    })
}

fn settings() -> impl Strategy<Value = QueueSettings> {
    let numbers = any::<(u16, u64, u64, u32, u32, u32, u64, u64)>();
    let kept = any::<[(u64, u64); 3]>();
    (numbers, retry(), 0.0..1e9, kept).prop_map(|(numbers, retry, rate_per_second, kept)| {
        let [completed, dead, cancelled] = kept.map(|(age_ms, count)| Retention { age_ms, count });
        QueueSettings {
            max_attempts: numbers.0,
            retry,
            lease_ms: numbers.1,
            timeout_ms: numbers.2,
            concurrency: numbers.3,
            key_concurrency: numbers.4,
            rate_per_second,
            rate_burst: numbers.5,
            completed,
            dead,
            cancelled,
            unique_window_ms: numbers.6,
            aging_ms: numbers.7,
        }
    })
}

/// Everything that commands are made of.
#[derive(Clone, Debug)]
struct Parts {
    numbers: [u64; 3],
    small: [u32; 3],
    yes: [bool; 2],
    keys: [u128; 2],
    ids: [[u8; 16]; 2],
    texts: [String; 2],
    bytes: [Vec<u8>; 2],
    after: Vec<u8>,
    unique: bool,
    settings: QueueSettings,
    options: TaskOptions,
}

fn parts() -> impl Strategy<Value = Parts> {
    let options = (option::of(any::<u16>()), option::of(retry()), option::of(any::<u64>()));
    let options = options.prop_map(|(max_attempts, retry, timeout_ms)| TaskOptions {
        max_attempts,
        retry,
        timeout_ms,
    });
    let texts = [".{0,20}", ".{0,20}"];
    let bytes = [vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..40)];
    let after = vec(any::<[u8; 16]>(), 0..4);
    let plain = (any::<[u64; 3]>(), any::<[u32; 3]>(), any::<[bool; 2]>(), any::<bool>());
    let wide = (any::<[u128; 2]>(), any::<[[u8; 16]; 2]>());
    (plain, wide, texts, bytes, after, settings(), options).prop_map(
        |((numbers, small, yes, unique), (keys, ids), texts, bytes, after, settings, options)| {
            Parts {
                numbers,
                small,
                yes,
                keys,
                ids,
                texts,
                bytes,
                after: after.concat(),
                unique,
                settings,
                options,
            }
        },
    )
}

impl Parts {
    fn task(&self) -> Enqueue<'_> {
        Enqueue {
            queue: self.small[0],
            shard: self.small[1] as u16,
            priority: (self.small[2] % 10) as u8,
            run_at_ms: self.numbers[0],
            delay_ms: self.numbers[2],
            key: self.keys[0],
            unique: self.unique.then_some((self.keys[1], self.numbers[1])),
            origin: self.yes[1].then_some((self.keys[0], self.numbers[2])),
            options: self.options,
            tags: &self.bytes[0],
            callback: self.yes[0],
            after: &self.after,
            content: &self.bytes[1],
        }
    }

    fn commands(&self) -> Vec<Command<'_>> {
        let [now_ms, seed, number] = self.numbers;
        let [queue, count, epoch] = self.small;
        let [paused, draining] = self.yes;
        let (tenant, name) = (&*self.texts[0], &*self.texts[1]);
        let held = TaskReport { number, token: seed, content: &self.bytes[1] };
        let how = [Defer::Nack, Defer::Snooze, Defer::Release][count as usize % 3];
        let mut all = vec![
            Command::Clock { now_ms, seed },
            Command::Step { by_ms: seed.cast_signed() },
            Command::Epoch { epoch, instance: count as u16, grace_ms: now_ms },
            Command::PutQueue { queue, tenant, name, settings: Box::new(self.settings.clone()) },
            Command::SetFlow { queue, paused, draining },
            Command::DeleteQueue { queue },
            Command::Enqueue(self.task()),
            Command::Claim { queue, worker: name, count, lease_ms: now_ms },
            Command::Complete(held),
            Command::Fail { report: held, permanent: paused },
            Command::Defer { report: held, delay_ms: now_ms, mode: how },
            Command::Heartbeat { report: held, lease_ms: now_ms },
            Command::Cancel { number },
            Command::Requeue { number, key: self.keys[0] },
            Command::Delete { number },
            Command::Purge { queue, states: count as u8, count: epoch },
            Command::Advance { budget: count },
        ];
        all.extend(self.between());
        all
    }

    /// What partitions say to each other, and schedules.
    fn between(&self) -> Vec<Command<'_>> {
        let [now_ms, seed, number] = self.numbers;
        let [_, count, _] = self.small;
        let paused = self.yes[0];
        let (tenant, name) = (&*self.texts[0], &*self.texts[1]);
        let [task, waiting] = self.ids.map(TaskId::from_bytes);
        vec![
            Command::Await { task, waiting, tenant: number },
            Command::Resolve { waiting, task, completed: paused },
            Command::Delivered { message: number },
            Command::PutSchedule(PutSchedule {
                tenant,
                name,
                next_ms: seed,
                paused,
                task: self.task(),
            }),
            Command::DeleteSchedule { tenant, name },
            Command::PauseSchedule { tenant, name, paused, next_ms: now_ms },
            Command::Tick { tenant, name, tick_ms: now_ms, next_ms: seed, tasks: count },
        ]
    }
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(parts in parts()) {
        let mut bytes = Vec::new();
        for command in parts.commands() {
            bytes.clear();
            record::encode(&command, &mut bytes);
            prop_assert_eq!(record::decode(&bytes), Ok(command));
        }
    }

    #[test]
    fn contents_are_read_as_they_were_written(
        payload in vec(any::<u8>(), 0..100),
        texts in [".{0,200}", ".{0,9}", ".{0,9}", ".{0,9}", ".{0,9}"],
        metadata in btree_map(".{0,9}", ".{0,150}", 0..4),
        schedule in vec(any::<u8>(), 0..200),
        is_json in any::<bool>(),
    ) {
        let content = Content {
            payload: &payload,
            format: if is_json { Format::Json } else { Format::Bytes },
            ordering_key: &texts[0],
            metadata: metadata.iter().map(|(name, value)| (&**name, &**value)).collect(),
            traceparent: &texts[1],
            tracestate: &texts[2],
            private: Private {
                callback_url: &texts[3],
                unique_key: &texts[4],
                schedule: &schedule,
            },
        };
        let mut bytes = Vec::new();
        content::encode(&mut bytes, &content);
        prop_assert_eq!(content::decode(&bytes), Ok(content));
    }

    #[test]
    fn tags_are_read_as_they_were_written(tags in vec(".{0,200}", 0..5)) {
        let mut bytes = Vec::new();
        content::put_tags(&mut bytes, tags.iter().map(String::as_str));
        prop_assert!(content::tags(&bytes).eq(tags.iter().map(String::as_str)));
    }

    #[test]
    fn ids_and_leases_keep_their_parts(
        created_ms in 0..1_u64 << 48,
        shard in 0..1_u16 << 12,
        instance in 0..1_u16 << 14,
        number in 0..1_u64 << 48,
        token in any::<u64>(),
    ) {
        let id = TaskId::new(created_ms, shard, instance, number);
        let parts = (id.created_ms(), id.shard(), id.instance(), id.number());
        prop_assert_eq!(parts, (created_ms, shard, instance, number));
        prop_assert_eq!(id.to_string().parse(), Ok(id));
        prop_assert_eq!(TaskId::from_bytes(id.to_bytes()), id);
        let lease = Lease { shard, number, token };
        prop_assert_eq!(Lease::from_bytes(&lease.to_bytes()), Some(lease));
    }
}
