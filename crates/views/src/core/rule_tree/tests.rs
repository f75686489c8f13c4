//! Rules as PostgreSQL writes them, and the equalities that are found in them.

use super::*;

fn check(rule: &str, operators: &[u32], types: &[u32]) {
    let expected = BareEqualities {
        operators: operators.iter().copied().collect(),
        types: types.iter().copied().collect(),
    };
    assert_eq!(bare_equalities(rule), expected, "{rule}");
}

#[test]
fn operators_that_are_not_printed_are_found_with_the_types_of_their_operands() {
    let email = "{VAR :varno 1 :vartype 16385 :location 7}";
    let literal = "{CONST :consttype 25 :constvalue 5 [ 20 0 0 0 97 ]}";
    check(
        &format!(
            "({{QUERY :targetList ({{TARGETENTRY :expr {{NULLIFEXPR :opno 98 :args ({email} {literal})}} :resname e}})}})"
        ),
        &[98],
        &[16385, 25],
    );
    // An implicit cast to the type of the operator is not the operand's.
    for (format, of) in [(2, 16385), (1, 25)] {
        check(
            &format!(
                "{{DISTINCTEXPR :opno 98 :args ({{RELABELTYPE :arg {email} :resulttype 25 :relabelformat {format}}})}}"
            ),
            &[98],
            &[of],
        );
    }
    check(
        &format!(
            "{{CASEEXPR :casetype 25 :arg {email} :args ({{CASEWHEN :expr {{OPEXPR :opno 7 :args ({{CASETESTEXPR :typeId 1}} {literal})}} :result {literal}}})}}"
        ),
        &[7],
        &[16385, 25],
    );
    check(
        &format!(
            "{{JOINEXPR :usingClause (\"a\\)\" \"b\") :quals {{BOOLEXPR :boolop and :args ({{OPEXPR :opno 1 :args ({email})}} {{OPEXPR :opno 2 :args ()}})}}}}"
        ),
        &[1, 2],
        &[16385],
    );
}

#[test]
fn operators_that_are_printed_are_not_among_them() {
    for rule in [
        "{OPEXPR :opno 98 :args ()}",
        "{CASEEXPR :casetype 25 :arg <> :args ({CASEWHEN :expr {OPEXPR :opno 7 :args ()}})}",
        "{JOINEXPR :usingClause <> :quals {OPEXPR :opno 1 :args ()}}",
        "}) ({",
        "",
    ] {
        check(rule, &[], &[]);
    }
}
