//! Answers while a partition of the queue has failed.

use egret_base::lifecycle::Service;
use egret_base_test::eventually;
use egret_proto::queue::v1;
use serde_json::json;
use tonic::Request;

use super::rig::Rig;
use super::wire::{enqueue, within_timeout};

#[tokio::test]
async fn answers_over_http_and_grpc_name_the_partitions_that_failed() {
    let rig = Rig::new().await;
    let mut client = rig.grpc().await;
    rig.create_queue("q").await;
    for _ in 0..4 {
        enqueue(&mut client, "q", &["x"]).await;
    }
    let name = || v1::QueueRequest { name: "q".to_owned() };
    let listing =
        || v1::ListTasksRequest { queue: "q".to_owned(), ..v1::ListTasksRequest::default() };
    let queue = within_timeout(client.get_queue(name())).await.unwrap().into_inner();
    assert!(queue.unavailable_partitions.is_empty());
    let page = within_timeout(client.list_tasks(listing())).await.unwrap().into_inner();
    assert_eq!((page.tasks.len(), page.unavailable_partitions), (4, vec![]));

    egret_queue::testing::panic_in_turn(&rig.queues, 1);
    eventually("a partition has failed", async || !rig.queues.failed_parts().is_empty()).await;
    let queue = within_timeout(client.get_queue(name())).await.unwrap().into_inner();
    assert_eq!(queue.unavailable_partitions, [1]);
    assert_eq!(queue.counts.unwrap().ready, 2);
    let all = client.list_queues(Request::new(v1::ListQueuesRequest {}));
    let all = within_timeout(all).await.unwrap().into_inner();
    assert_eq!(all.queues[0].unavailable_partitions, [1]);
    let page = within_timeout(client.list_tasks(listing())).await.unwrap().into_inner();
    assert_eq!((page.tasks.len(), page.unavailable_partitions), (2, vec![1]));
    for path in ["/v1/queues/q", "/v1/queues/q/tasks"] {
        let answer = rig.get(path).await;
        assert_eq!(answer["unavailable_partitions"], json!([1]), "{path}");
    }
    rig.close().await;
}
