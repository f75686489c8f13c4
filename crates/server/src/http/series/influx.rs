//! Influx's line protocol, at the paths that its own clients and Telegraf use below
//! `/v1/series/influx`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use egret_metrics_wire::influx::Precision;
use egret_series::{Series, SeriesError};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::{process_body, read_decompressed};
use super::tenant_access::DefaultTenantAccess;
use crate::error::RequestError;
use crate::extract::Query;
use crate::problem::Problem;

/// The parameters of a write. Other parameters of InfluxDB clients are ignored.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct InfluxParams {
    /// The unit of timestamps: `ns` (the default), `us`, `ms`, `s`, `m` or `h`.
    #[serde(default)]
    precision: String,
    /// The database; it becomes the label `db`.
    #[serde(default)]
    db: String,
}

/// Makes a route of the one implementation, as Influx's clients have several addresses for it.
macro_rules! route {
    ($name:ident, $path:literal, $operation:literal, $summary:literal) => {
        #[doc = $summary]
        ///
        /// A field becomes the series `measurement_field`, tags its labels. Plain or in gzip. Good
        /// lines are kept when others are refused.
        #[utoipa::path(post, path = $path, operation_id = $operation, tag = "series",
            extensions(("x-egret-piecemeal" = json!(true))), security(("token" = ["series:write"])),
            params(InfluxParams),
            request_body(content = String, content_type = "text/plain", description = "The lines."),
            responses((status = 204, description = "All samples were written.")))]
        pub(super) async fn $name(
            State(series): State<Series>,
            _: DefaultTenantAccess,
            Query(written): Query<InfluxParams>,
            request: Request,
        ) -> Result<Response, Problem> {
            write(&series, &written, request).await
        }
    };
}

route!(
    write_influx,
    "/v1/series/influx",
    "writeInflux",
    "Write samples in the InfluxDB line protocol"
);
route!(
    write_influx_v1,
    "/v1/series/influx/write",
    "writeInfluxV1",
    "Write samples in the InfluxDB line protocol, as its version 1 does"
);
route!(
    write_influx_v2,
    "/v1/series/influx/api/v2/write",
    "writeInfluxV2",
    "Write samples in the InfluxDB line protocol, as its version 2 does"
);

async fn write(
    series: &Series,
    params: &InfluxParams,
    request: Request,
) -> Result<Response, Problem> {
    let precision = Precision::from_name(&params.precision);
    let precision = precision.ok_or_else(|| RequestError::Parameter {
        place: "query",
        message: format!("precision: `{}` is not one of ns, us, ms, s, m, h", params.precision),
    })?;
    let body = read_decompressed(request, series.config()).await?;
    let (series, database) = (series.clone(), params.db.clone());
    let written = process_body(body, async move |body| {
        let labels = [("db", database.as_str())];
        series.write_influx(&body, precision, &labels).await
    })
    .await?;
    match written.rejected.samples {
        0 => Ok(StatusCode::NO_CONTENT.into_response()),
        _ => Err(SeriesError::Invalid {
            what: "lines",
            reason: format!("{} samples written; {}", written.samples, written.rejected),
        }
        .into()),
    }
}
