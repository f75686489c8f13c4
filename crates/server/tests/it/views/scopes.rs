//! Scopes that name views: what a view may read that is made with one, and what is told of others.

use egret_base_test::eventually;
use egret_proto::views::v1::FollowRequest;
use egret_proto::views::v1::views_client::ViewsClient;
use tonic::Code;
use tonic::transport::Endpoint;

use super::*;

/// Longer than anything that works takes.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

async fn within_timeout<T>(coming: impl Future<Output = T>) -> T {
    let coming = tokio::time::timeout(TIMEOUT, coming).await;
    coming.expect("it comes within a minute")
}

/// Asks with a token; status and body.
async fn send(rig: &Rig, token: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
    let request = rig.test_server.request_without_token(method, path).bearer_auth(token);
    let request = match body {
        Value::Null => request,
        body => request.json(&body),
    };
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_default())
}

/// A view `other` of the table, and what lies over it: a view `middle` of Egret's, and plain views.
async fn rig() -> Rig {
    let rig = Rig::new().await;
    rig.create_view("other", "select id, carrier from flights").await;
    rig.create_view("middle", "select id from other").await;
    let plain = "CREATE VIEW plain AS SELECT id, carrier FROM other;
        CREATE VIEW \"Plain\" AS SELECT * FROM plain; CREATE VIEW of_table AS SELECT id FROM flights;
        GRANT SELECT ON plain, \"Plain\", of_table TO egret_views";
    rig.client.batch_execute(plain).await.unwrap();
    rig
}

fn view(name: &str, query: &str, mode: &str) -> Value {
    json!({"name": name, "query": query, "mode": mode})
}

/// Queries over view `other`, with what they name.
const OVER_OTHER: [(&str, &str); 8] = [
    ("select id from public.other", "public.other"),
    ("select id from other", "public.other"),
    ("select count(*) as n from flights where id in (select id from other)", "public.other"),
    ("with other as (select id from public.other) select id from other", "public.other"),
    (
        "with x as (select id from other), other as (select 1 as id) select id from x",
        "public.other",
    ),
    ("select id from plain", "public.plain"),
    ("select f.id from flights f join \"Plain\" p on p.id = f.id", "public.Plain"),
    ("select nothing from other", "public.other"),
];

#[tokio::test]
async fn a_view_reads_no_view_that_its_maker_may_not_read() {
    let rig = rig().await;
    let token = rig.test_server.token(&["views/mine*:read", "views/mine*:write"], None);
    for (query, named) in OVER_OTHER {
        for mode in ["auto", "full", "immediate"] {
            let body = view("mine_x", query, mode);
            let (status, refused) = send(&rig, &token, Method::POST, "/v1/views", body).await;
            assert_eq!(status, 403, "{query} {mode}: {refused}");
            assert_eq!(refused["code"], "view_read_denied", "{query} {mode}: {refused}");
            let told = refused.to_string();
            assert!(told.contains(&format!("`{named}`")), "{query}: {told}");
            let hidden = named != "public.other" && told.contains("other");
            assert!(!hidden, "{query}: {told}");
        }
    }
    // Neither are columns told.
    let over = "select nothing from other";
    for scopes in [["views/mine*:read", "views:write"], ["views:write", "queue:read"]] {
        let writer = rig.test_server.token(&scopes, None);
        let body = json!({"query": over});
        let (status, refused) =
            send(&rig, &writer, Method::POST, "/v1/view-validations", body).await;
        assert_eq!((status, &refused["code"]), (403, &json!("view_read_denied")));
        let body = view("mine_x", "select id from plain", "auto");
        let (status, _) = send(&rig, &writer, Method::POST, "/v1/views", body).await;
        assert_eq!(status, 403);
    }
    let listed = rig.send_expecting(Method::GET, "/v1/views", Value::Null, 200).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    rig.close().await;
}

#[tokio::test]
async fn a_view_reads_views_that_its_maker_may_read() {
    let rig = rig().await;
    // The scope for `middle` suffices to read it, whatever it reads itself.
    let token = rig.test_server.token(&["views/mine*:*", "views/middle:read"], None);
    let over = [
        ("mine_1", "select id from middle"),
        ("mine_2", "select id from of_table"),
        ("mine_3", "select id from mine_1"),
    ];
    for (name, query) in over {
        let (status, made) =
            send(&rig, &token, Method::POST, "/v1/views", view(name, query, "auto")).await;
        assert_eq!(status, 201, "{query}: {made}");
    }
    for scopes in [vec!["views:*"], vec!["admin"], vec!["views:write", "views/other:read"]] {
        let token = rig.test_server.token(&scopes, None);
        let body = view("whole", "select id from plain", "auto");
        let (status, made) = send(&rig, &token, Method::POST, "/v1/views", body).await;
        assert_eq!(status, 201, "{scopes:?}: {made}");
        let (status, _) = send(&rig, &token, Method::DELETE, "/v1/views/whole", Value::Null).await;
        assert_eq!(status, 204);
    }
    rig.close().await;
}

/// A name that a view reads may become that of another view; to make the view anew is refused then.
#[tokio::test]
async fn a_repair_reads_no_view_that_was_not_read_before() {
    let rig = rig().await;
    let token = rig.test_server.token(&["views/mine*:*"], None);
    for (name, mode) in [("mine_1", "auto"), ("mine_2", "auto")] {
        let body = view(name, "select id from of_table", mode);
        let (status, made) = send(&rig, &token, Method::POST, "/v1/views", body).await;
        assert_eq!(status, 201, "{made}");
    }
    let over = "CREATE OR REPLACE VIEW of_table AS SELECT id FROM other";
    rig.client.batch_execute(over).await.unwrap();
    let repair = "/v1/views/mine_1/repair";
    let change = json!({"mode": "immediate"});
    for (method, path, body) in
        [(Method::POST, repair, Value::Null), (Method::PATCH, "/v1/views/mine_2", change)]
    {
        let (status, refused) = send(&rig, &token, method, path, body).await;
        assert_eq!((status, &refused["code"]), (403, &json!("view_read_denied")), "{refused}");
        assert!(!refused.to_string().contains("other`"), "{refused}");
    }
    rig.send_expecting(Method::POST, repair, Value::Null, 200).await;
    // After the admin's repair the view reads the other one already, so the token may repair it.
    let (status, repaired) = send(&rig, &token, Method::POST, repair, Value::Null).await;
    assert_eq!(status, 200, "{repaired}");
    rig.close().await;
}

#[tokio::test]
async fn readers_of_a_view_are_named_to_those_who_may_read_them() {
    let rig = rig().await;
    let token = rig.test_server.token(&["views/other:*"], None);
    let path = "/v1/views/other";
    let (status, shown) = send(&rig, &token, Method::GET, path, Value::Null).await;
    assert_eq!((status, &shown["read_by"]), (200, &json!([])), "{shown}");
    let (status, refused) = send(&rig, &token, Method::DELETE, path, Value::Null).await;
    assert_eq!((status, &refused["code"]), (409, &json!("view_in_use")));
    assert!(!refused.to_string().contains("middle"), "{refused}");
    let shown = rig.send_expecting(Method::GET, path, Value::Null, 200).await;
    assert_eq!(shown["read_by"], json!(["public.middle"]));
    let refused = rig.send_expecting(Method::DELETE, path, Value::Null, 409).await;
    assert!(refused.to_string().contains("public.middle"), "{refused}");
    rig.close().await;
}

#[tokio::test]
async fn a_trigger_of_a_user_keeps_a_view_whatever_the_token() {
    let rig = rig().await;
    let token = rig.test_server.token(&["views/middle:*"], None);
    let path = "/v1/views/middle";
    let make = "CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; \
                CREATE TRIGGER hidden INSTEAD OF INSERT ON middle FOR EACH ROW EXECUTE FUNCTION own()";
    rig.client.batch_execute(make).await.unwrap();
    let (status, refused) = send(&rig, &token, Method::DELETE, path, Value::Null).await;
    assert_eq!((status, &refused["code"]), (409, &json!("view_in_use")));
    let told = refused["detail"].as_str().unwrap();
    assert!(told.contains("1 objects of the database, such as triggers"), "{told}");
    assert!(!told.contains("hidden"), "{told}");
    let refused = rig.send_expecting(Method::DELETE, path, Value::Null, 409).await;
    let told = refused["detail"].as_str().unwrap();
    assert!(told.contains("DROP TRIGGER hidden ON public.middle"), "{told}");
    rig.client.batch_execute("DROP TRIGGER hidden ON middle").await.unwrap();
    let (status, _) = send(&rig, &token, Method::DELETE, path, Value::Null).await;
    assert_eq!(status, 204);
    rig.close().await;
}

/// Names are compared as they are read: quotes hide no schema.
#[tokio::test]
async fn a_name_in_quotes_is_compared_as_the_view_that_it_names() {
    let rig = rig().await;
    let token = rig.test_server.token(&["views/pub*:*"], None);
    for path in ["pub\"lic\".other", "\"public\".other", "public.other", "other"] {
        let path = format!("/v1/views/{}", path.replace('"', "%22"));
        let (status, refused) = send(&rig, &token, Method::GET, &path, Value::Null).await;
        assert_eq!((status, &refused["code"]), (403, &json!("scope_missing")), "{path}");
    }
    let token = rig.test_server.token(&["views/other:read"], None);
    for path in ["pub\"lic\".other", "\"public\".other", "public.other", "\"other\""] {
        let path = format!("/v1/views/{}", path.replace('"', "%22"));
        let (status, shown) = send(&rig, &token, Method::GET, &path, Value::Null).await;
        assert_eq!(status, 200, "{path}: {shown}");
    }
    rig.close().await;
}

#[tokio::test]
async fn changes_become_tasks_by_those_who_may_read_them() {
    let rig = rig().await;
    let path = "/v1/views/other";
    let change = json!({"on_change_enqueue": "late"});
    for (scopes, expected) in [
        (vec!["views/other:write", "queue:*"], 403),
        (vec!["views:write", "views/mine:read", "queue:*"], 403),
        (vec!["views/other:*"], 403),
        (vec!["views/other:*", "queue/late:produce"], 200),
    ] {
        let token = rig.test_server.token(&scopes, None);
        let (status, answer) = send(&rig, &token, Method::PATCH, path, change.clone()).await;
        assert_eq!(status, expected, "{scopes:?}: {answer}");
    }
    rig.close().await;
}

/// Every kind of open request ends with its token: both ways to follow, and a refresh that waits
/// for a lock.
#[tokio::test]
async fn open_requests_end_with_their_token() {
    for (end, code) in [("expired", "token_expired"), ("revoked", "token_invalid")] {
        let rig = rig().await;
        let asked = json!({"name": "w", "scopes": ["views:*"], "ttl_ms": 60_000});
        let made = rig.send_expecting(Method::POST, "/v1/tokens", asked, 201).await;
        let token = made["token"].as_str().unwrap();
        let path = "/v1/views/other/changes";
        let events = rig.test_server.request_without_token(Method::GET, path).bearer_auth(token);
        let mut events = within_timeout(events.send()).await.unwrap();
        assert_eq!(events.status(), 200);
        assert!(within_timeout(events.chunk()).await.unwrap().is_some());
        let endpoint = Endpoint::from_shared(rig.test_server.base.clone()).unwrap();
        let mut client = ViewsClient::new(endpoint.connect().await.unwrap());
        let mut follow = tonic::Request::new(FollowRequest {
            view: "other".to_owned(),
            ..FollowRequest::default()
        });
        let value = format!("Bearer {token}").parse().unwrap();
        follow.metadata_mut().insert("authorization", value);
        let mut follow = within_timeout(client.follow(follow)).await.unwrap().into_inner();
        assert!(within_timeout(follow.message()).await.unwrap().is_some());
        let locker = rig.database.connect().await;
        let lock = "BEGIN; INSERT INTO flights VALUES (9, 'AA', 1); LOCK TABLE flights IN ACCESS EXCLUSIVE MODE";
        locker.batch_execute(lock).await.unwrap();
        let refresh = rig
            .test_server
            .request_without_token(Method::POST, "/v1/views/other/repair")
            .bearer_auth(token)
            .send();
        let ending = async {
            let waits = "SELECT count(*) > 0 FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database \
                         WHERE d.datname = current_database() AND NOT l.granted";
            eventually("the refresh waits for a lock", async || {
                let row = rig.client.query_one(waits, &[]).await;
                row.unwrap().get::<_, bool>(0)
            })
            .await;
            if end == "expired" {
                rig.test_server.clock.advance(TIMEOUT);
            } else {
                let path = format!("/v1/tokens/{}", made["id"].as_str().unwrap());
                rig.send_expecting(Method::DELETE, &path, Value::Null, 204).await;
            }
        };
        let (refreshed, ()) = within_timeout(async { tokio::join!(refresh, ending) }).await;
        problem(refreshed.unwrap(), 401, code).await;
        while within_timeout(events.chunk()).await.unwrap().is_some() {}
        let status = loop {
            match within_timeout(follow.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended as if there were no more changes"),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::Unauthenticated, "{end}: {status:?}");
        locker.batch_execute("ROLLBACK").await.unwrap();
        rig.close().await;
    }
}
