//! `egret uninstall`: nothing of Egret is left in a database.

use std::time::Duration;

use egret_base::CodedError;
use egret_documents::documents_in;
use egret_postgres::installation::EXAMINATION_STEP_MAX;
use egret_postgres::pool::within_answer_time;
use egret_postgres::{external, installation};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::external::{into_failure, parse_connection};
use super::plural::{is_or_are, number_of};
use crate::api::Api;
use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::output::{self, Output};

/// How long a server may take to count documents, of which there may be very many.
const COUNT_TIMEOUT: Duration = Duration::from_secs(600);

/// What is in a database.
#[derive(Debug, Deserialize)]
struct Installation {
    database: String,
    names: Vec<String>,
    dependents: Vec<String>,
    obstacles: Vec<Obstacle>,
    #[serde(default)]
    indexes: Vec<String>,
    outbox_rows: Option<u64>,
    documents: Option<i64>,
}

/// What Egret has in all databases, and the databases that cannot be looked into.
#[derive(Debug, Deserialize)]
struct Installations {
    items: Vec<Installation>,
    #[serde(default)]
    unreachable: Vec<String>,
}

/// An object of a user's that keeps Egret from being removed.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Obstacle {
    pub(super) object: String,
    pub(super) command: Option<String>,
}

impl From<installation::Obstacle> for Obstacle {
    fn from(obstacle: installation::Obstacle) -> Self {
        Self { object: obstacle.object, command: obstacle.command }
    }
}

#[derive(Debug, Deserialize)]
struct RemovalResult {
    database: String,
    views: u64,
    outbox_rows: u64,
    documents: i64,
}

/// Removes Egret from a database of the running server, which stops working in it.
pub(super) async fn by_server(
    database: Option<String>,
    force: bool,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let lookup = match find_installation(database.as_deref(), api).await {
        Err(failure) if failure.code == "server_unreachable" => {
            let hint = "start it, or give the connection string of the database";
            return Err(failure.with_hint(hint));
        }
        found => found?,
    };
    let Some(installation) = lookup else {
        let answer = json!({"database": database, "removed": false});
        return output.print_answer(&answer, |_: Json| nothing_message());
    };
    if !force {
        let answer = json!({
            "database": installation.database,
            "removed": false,
            "would_remove": {
                "objects": installation.names.len(),
                "names": installation.names,
                "dependents": installation.dependents,
                "obstacles": installation.obstacles,
                "indexes": installation.indexes,
                "outbox_rows": installation.outbox_rows,
                "documents": installation.documents,
            },
        });
        return output.print_answer(&answer, |_: Json| describe_removal(&installation));
    }
    let path = ["installations", &installation.database];
    let answer = api.delete(&path, &[("force", "true")]).await?;
    output.print_answer(&answer, |result: RemovalResult| {
        let RemovalResult { database, views, outbox_rows, documents } = result;
        let (gone_views, are) = (number_of(views, "view"), is_or_are(views));
        let mut message =
            format!("nothing of egret is left in {database}: {gone_views} {are} removed");
        if outbox_rows > 0 {
            let rows = number_of(outbox_rows, "row");
            message.push_str(&format!(", and {rows} of its outbox"));
        }
        if documents > 0 {
            let documents = number_of(documents.unsigned_abs(), "document");
            message.push_str(&format!(", and {documents}"));
        }
        message
    })
}

/// What is in the database named, else in the only one with something in it.
async fn find_installation(
    named: Option<&str>,
    api: &Api,
) -> Result<Option<Installation>, Failure> {
    let answer = api.get(&["installations"], &[]).await?;
    let Installations { mut items, unreachable } = output::decode(&answer)?;
    if let Some(named) = named {
        let installation = items.into_iter().find(|found| found.database == named);
        let is_unreachable = unreachable.iter().any(|name| name == named);
        return match installation {
            None if is_unreachable => Err(unreachable_failure(&[named.to_owned()])),
            found => Ok(found),
        };
    }
    if items.is_empty() && !unreachable.is_empty() {
        return Err(unreachable_failure(&unreachable));
    }
    if let [found] = items.as_slice()
        && !unreachable.is_empty()
    {
        return Err(Failure::usage(format!(
            "egret has objects in {}, and perhaps in {}, which accepts no session: name one with \
             --database",
            found.database,
            unreachable.join(", ")
        )));
    }
    if items.len() > 1 {
        let names: Vec<String> = items.into_iter().map(|found| found.database).collect();
        return Err(Failure::usage(format!(
            "egret has objects in several databases, name one with --database: {}",
            names.join(", ")
        )));
    }
    Ok(items.pop())
}

/// Refuses to report that nothing is left while some databases cannot be looked into.
fn unreachable_failure(databases: &[String]) -> Failure {
    Failure::failed(
        "postgres_database_unreachable",
        format!(
            "cannot find out whether egret has objects in {}, which accepts no session: allow \
             connections with ALTER DATABASE … ALLOW_CONNECTIONS true",
            databases.join(", ")
        ),
    )
}

/// Removes Egret from a database that no Egret works in.
pub(super) async fn directly(
    url: String,
    force: bool,
    configuration: &Configuration,
    output: Output,
) -> Result<(), Failure> {
    let connection = parse_connection(Some(url), configuration)?;
    let mut client = external::connect(&connection).await.map_err(into_failure)?;
    let taking_inventory = installation::inventory(&client);
    let inventory =
        within_answer_time(EXAMINATION_STEP_MAX, "look at schema egret", taking_inventory).await;
    let Some(contents) = inventory.map_err(into_failure)? else {
        return output.print_answer(&json!({"removed": false}), |_: Json| nothing_message());
    };
    let counting = documents_in(&client);
    let documents = within_answer_time(COUNT_TIMEOUT, "count the documents", counting).await;
    let database = connection.get_dbname().or(connection.get_user());
    let installation = Installation {
        database: database.unwrap_or_default().to_owned(),
        names: contents.objects,
        dependents: contents.views,
        obstacles: contents.obstacles.into_iter().map(Obstacle::from).collect(),
        indexes: contents.indexes,
        outbox_rows: None,
        documents: documents.map_err(into_documents_failure)?,
    };
    let summary = json!({
        "objects": installation.names.len(),
        "names": installation.names,
        "dependents": installation.dependents,
        "obstacles": installation.obstacles,
        "indexes": installation.indexes,
        "documents": installation.documents,
    });
    if !force {
        let answer = json!({"removed": false, "would_remove": summary});
        return output.print_answer(&answer, |_: Json| describe_removal(&installation));
    }
    installation::uninstall_within(&mut client, force, EXAMINATION_STEP_MAX)
        .await
        .map_err(into_failure)?;
    let answer = json!({"removed": true, "was": summary});
    output.print_answer(&answer, |_: Json| {
        format!("schema egret is removed with its {}", count_objects(&installation))
    })
}

fn into_documents_failure(error: egret_documents::DocumentsError) -> Failure {
    Failure::failed(error.code(), error.to_string())
}

fn nothing_message() -> String {
    "this database contains nothing of egret".to_owned()
}

fn count_objects(installation: &Installation) -> String {
    number_of(installation.names.len() as u64, "object")
}

fn describe_removal(installation: &Installation) -> String {
    let mut text = format!(
        "nothing is removed: --force would remove schema egret of {} with its {}",
        installation.database,
        count_objects(installation)
    );
    if let Some(rows) = installation.outbox_rows {
        text.push_str(&format!("\n  an outbox with {rows} rows that are not tasks yet"));
    }
    if let Some(documents) = installation.documents {
        text.push_str(&format!("\n  {documents} documents"));
    }
    for view in &installation.dependents {
        text.push_str(&format!("\n  the view {view}"));
    }
    for name in &installation.names {
        text.push_str(&format!("\n  {name}"));
    }
    for index in &installation.indexes {
        text.push_str(&format!("\n  {index}, which is yours"));
    }
    if !installation.obstacles.is_empty() {
        text.push_str(
            "\n--force would be refused, because these objects are yours and would be lost:",
        );
    }
    for Obstacle { object, command } in &installation.obstacles {
        text.push_str(&format!("\n  {object}"));
        if let Some(command) = command {
            text.push_str(&format!("\n    {command};"));
        }
    }
    text
}
