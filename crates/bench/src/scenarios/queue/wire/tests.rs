//! The hand-written format against the generated one.

use egret_proto::queue::v1;
use proptest::prelude::*;
use prost::Message;

use super::*;

fn fields(mut fields: Fields<'_>) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut all = Vec::new();
    while let Some((field, value)) = fields.next()? {
        all.push(match value {
            Value::Varint(number) => (field, number.to_le_bytes().to_vec()),
            Value::Bytes(bytes) => (field, bytes.to_vec()),
        });
    }
    Ok(all)
}

proptest! {
    #[test]
    fn a_task_reads_as_it_was_meant(payload in prop::collection::vec(any::<u8>(), 1..20_000), queue in "[a-z]{1,200}") {
        let mut out = BytesMut::new();
        put_bytes_field(&mut out, 1, queue.as_bytes());
        put_new_task(&mut out, &payload);
        put_new_task(&mut out, &payload);
        let read = v1::ProduceRequest::decode(out.freeze()).unwrap();
        prop_assert_eq!(read.queue, queue);
        prop_assert_eq!(read.tasks.len(), 2);
        for task in read.tasks {
            prop_assert_eq!(&task.payload[..], &payload[..]);
            prop_assert_eq!(task, v1::NewTask { payload: payload.clone().into(), ..Default::default() });
        }
    }

    #[test]
    fn a_report_reads_as_it_was_meant(lease in prop::collection::vec(any::<u8>(), 1..300), count in 1..u32::MAX) {
        let mut out = BytesMut::new();
        put_hello(&mut out, "mail", "somebody", 1_000);
        put_credits(&mut out, count);
        put_completed(&mut out, &lease, b"ok");
        let read = v1::WorkRequest::decode(out.freeze()).unwrap();
        let expected = v1::WorkRequest {
            hello: Some(v1::Hello {
                queues: vec!["mail".to_owned()],
                worker: "somebody".to_owned(),
                lease_ms: 1_000,
            }),
            credits: count,
            drain: false,
            reports: vec![v1::TaskReport {
                lease: lease.into(),
                report: Some(v1::task_report::Report::Completed(v1::Completed {
                    result: b"ok".as_slice().into(),
                    format: 0,
                    attachments: Vec::new(),
                })),
            }],
        };
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn any_number_is_read_back(value in any::<u64>()) {
        let mut out = BytesMut::new();
        put_varint(&mut out, value);
        prop_assert_eq!(out.len(), varint_len(value));
        let mut bytes = &out[..];
        prop_assert_eq!(varint(&mut bytes).unwrap(), value);
        prop_assert!(bytes.is_empty());
    }

    #[test]
    fn nothing_that_comes_ends_the_program(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = fields(Fields(&bytes));
    }
}

#[test]
fn what_is_cut_off_is_refused() {
    assert!(fields(Fields(&[0x12, 5, 1])).is_err());
    assert!(fields(Fields(&[0x80])).is_err());
    assert_eq!(fields(Fields(&[])).unwrap(), []);
}
