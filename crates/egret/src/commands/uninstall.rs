//! `egret uninstall`: nothing of Egret is left in a database.

use std::time::Duration;

use egret_base::CodedError;
use egret_documents::documents_in;
use egret_postgres::installation::EXAMINATION_STEP_MAX;
use egret_postgres::pool::within_answer_time;
use egret_postgres::{external, installation};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::external::{connection, failed};
use super::plural::{are, number_of};
use crate::api::Api;
use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::output::{self, Output};

/// How long a server may take to count documents, of which there may be very many.
const COUNT_MAX: Duration = Duration::from_secs(600);

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
    fn from(found: installation::Obstacle) -> Self {
        Self {
            object: found.object,
            command: found.command,
        }
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
    let found = match installed(database.as_deref(), api).await {
        Err(failure) if failure.code == "server_unreachable" => {
            let hint = "start it, or give the connection string of the database";
            return Err(failure.with_hint(hint));
        }
        found => found?,
    };
    let Some(found) = found else {
        let answer = json!({"database": database, "removed": false});
        return output.answer(&answer, |_: Json| nothing());
    };
    if !force {
        let answer = json!({
            "database": found.database,
            "removed": false,
            "would_remove": {
                "objects": found.names.len(),
                "names": found.names,
                "dependents": found.dependents,
                "obstacles": found.obstacles,
                "indexes": found.indexes,
                "outbox_rows": found.outbox_rows,
                "documents": found.documents,
            },
        });
        return output.answer(&answer, |_: Json| foretold(&found));
    }
    let path = ["installations", &found.database];
    let answer = api.delete(&path, &[("force", "true")]).await?;
    output.answer(&answer, |gone: RemovalResult| {
        let RemovalResult {
            database,
            views,
            outbox_rows,
            documents,
        } = gone;
        let (gone_views, are) = (number_of(views, "view"), are(views));
        let mut gone =
            format!("nothing of egret is left in {database}: {gone_views} {are} removed");
        if outbox_rows > 0 {
            let rows = number_of(outbox_rows, "row");
            gone.push_str(&format!(", and {rows} of its outbox"));
        }
        if documents > 0 {
            let documents = number_of(documents.unsigned_abs(), "document");
            gone.push_str(&format!(", and {documents}"));
        }
        gone
    })
}

/// What is in the database named, else in the only one with something in it.
async fn installed(named: Option<&str>, api: &Api) -> Result<Option<Installation>, Failure> {
    let answer = api.get(&["installations"], &[]).await?;
    let Installations {
        mut items,
        unreachable,
    } = output::decode(&answer)?;
    if let Some(named) = named {
        let found = items.into_iter().find(|found| found.database == named);
        let is_unreachable = unreachable.iter().any(|name| name == named);
        return match found {
            None if is_unreachable => Err(unknown(&[named.to_owned()])),
            found => Ok(found),
        };
    }
    if items.is_empty() && !unreachable.is_empty() {
        return Err(unknown(&unreachable));
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
fn unknown(databases: &[String]) -> Failure {
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
    let connection = connection(Some(url), configuration)?;
    let mut client = external::connect(&connection).await.map_err(failed)?;
    let looking = installation::inventory(&client);
    let inventory = within_answer_time(EXAMINATION_STEP_MAX, "look at schema egret", looking).await;
    let Some(found) = inventory.map_err(failed)? else {
        return output.answer(&json!({"removed": false}), |_: Json| nothing());
    };
    let counting = documents_in(&client);
    let documents = within_answer_time(COUNT_MAX, "count the documents", counting).await;
    let database = connection.get_dbname().or(connection.get_user());
    let found = Installation {
        database: database.unwrap_or_default().to_owned(),
        names: found.objects,
        dependents: found.views,
        obstacles: found.obstacles.into_iter().map(Obstacle::from).collect(),
        indexes: found.indexes,
        outbox_rows: None,
        documents: documents.map_err(documents_failed)?,
    };
    let what = json!({
        "objects": found.names.len(),
        "names": found.names,
        "dependents": found.dependents,
        "obstacles": found.obstacles,
        "indexes": found.indexes,
        "documents": found.documents,
    });
    if !force {
        let answer = json!({"removed": false, "would_remove": what});
        return output.answer(&answer, |_: Json| foretold(&found));
    }
    installation::uninstall_within(&mut client, force, EXAMINATION_STEP_MAX)
        .await
        .map_err(failed)?;
    let answer = json!({"removed": true, "was": what});
    output.answer(&answer, |_: Json| {
        format!("schema egret is removed with its {}", objects(&found))
    })
}

fn documents_failed(error: egret_documents::DocumentsError) -> Failure {
    Failure::failed(error.code(), error.to_string())
}

fn nothing() -> String {
    "this database contains nothing of egret".to_owned()
}

fn objects(found: &Installation) -> String {
    number_of(found.names.len() as u64, "object")
}

fn foretold(found: &Installation) -> String {
    let mut text = format!(
        "nothing is removed: --force would remove schema egret of {} with its {}",
        found.database,
        objects(found)
    );
    if let Some(rows) = found.outbox_rows {
        text.push_str(&format!(
            "\n  an outbox with {rows} rows that are not tasks yet"
        ));
    }
    if let Some(documents) = found.documents {
        text.push_str(&format!("\n  {documents} documents"));
    }
    for view in &found.dependents {
        text.push_str(&format!("\n  the view {view}"));
    }
    for name in &found.names {
        text.push_str(&format!("\n  {name}"));
    }
    for index in &found.indexes {
        text.push_str(&format!("\n  {index}, which is yours"));
    }
    if !found.obstacles.is_empty() {
        text.push_str(
            "\n--force would be refused, because these objects are yours and would be lost:",
        );
    }
    for Obstacle { object, command } in &found.obstacles {
        text.push_str(&format!("\n  {object}"));
        if let Some(command) = command {
            text.push_str(&format!("\n    {command};"));
        }
    }
    text
}
