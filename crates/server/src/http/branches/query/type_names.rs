//! Names of PostgreSQL's common types.
//!
//! The oids are fixed: they stand in `pg_type.dat` and have not changed since these types were
//! made.

/// Types with their names, by oid.
const NAMES: [(u32, &str); 93] = [
    (16, "bool"),
    (17, "bytea"),
    (18, "char"),
    (19, "name"),
    (20, "int8"),
    (21, "int2"),
    (22, "int2vector"),
    (23, "int4"),
    (24, "regproc"),
    (25, "text"),
    (26, "oid"),
    (27, "tid"),
    (28, "xid"),
    (29, "cid"),
    (30, "oidvector"),
    (114, "json"),
    (142, "xml"),
    (143, "_xml"),
    (199, "_json"),
    (600, "point"),
    (601, "lseg"),
    (602, "path"),
    (603, "box"),
    (604, "polygon"),
    (628, "line"),
    (650, "cidr"),
    (651, "_cidr"),
    (700, "float4"),
    (701, "float8"),
    (705, "unknown"),
    (718, "circle"),
    (774, "macaddr8"),
    (790, "money"),
    (829, "macaddr"),
    (869, "inet"),
    (1000, "_bool"),
    (1001, "_bytea"),
    (1002, "_char"),
    (1003, "_name"),
    (1005, "_int2"),
    (1007, "_int4"),
    (1009, "_text"),
    (1014, "_bpchar"),
    (1015, "_varchar"),
    (1016, "_int8"),
    (1021, "_float4"),
    (1022, "_float8"),
    (1028, "_oid"),
    (1033, "aclitem"),
    (1034, "_aclitem"),
    (1041, "_inet"),
    (1042, "bpchar"),
    (1043, "varchar"),
    (1082, "date"),
    (1083, "time"),
    (1114, "timestamp"),
    (1115, "_timestamp"),
    (1182, "_date"),
    (1183, "_time"),
    (1184, "timestamptz"),
    (1185, "_timestamptz"),
    (1186, "interval"),
    (1187, "_interval"),
    (1231, "_numeric"),
    (1266, "timetz"),
    (1270, "_timetz"),
    (1560, "bit"),
    (1561, "_bit"),
    (1562, "varbit"),
    (1563, "_varbit"),
    (1700, "numeric"),
    (2205, "regclass"),
    (2206, "regtype"),
    (2249, "record"),
    (2278, "void"),
    (2287, "_record"),
    (2950, "uuid"),
    (2951, "_uuid"),
    (3220, "pg_lsn"),
    (3614, "tsvector"),
    (3615, "tsquery"),
    (3802, "jsonb"),
    (3807, "_jsonb"),
    (3904, "int4range"),
    (3906, "numrange"),
    (3908, "tsrange"),
    (3910, "tstzrange"),
    (3912, "daterange"),
    (3926, "int8range"),
    (4072, "jsonpath"),
    (4089, "regnamespace"),
    (4096, "regrole"),
    (5069, "xid8"),
];

/// The name of a type.
pub(super) fn of(oid: u32) -> Option<&'static str> {
    let index = NAMES.binary_search_by_key(&oid, |(oid, _)| *oid).ok()?;
    Some(NAMES[index].1)
}

/// The oid of a type, for tests that speak of types by name.
#[cfg(test)]
pub(super) fn oid_of(name: &str) -> u32 {
    let found = NAMES.iter().find(|(_, known)| *known == name);
    found
        .unwrap_or_else(|| panic!("{name} is not in the table"))
        .0
}
