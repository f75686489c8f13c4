//! What is written is what is read.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn a_name_is_read_as_it_is_written(text in "\\PC{1,12}|[a-z.\"]{1,12}") {
        if let Ok(name) = text.parse::<ViewName>() {
            prop_assert_eq!(name.to_string().parse::<ViewName>(), Ok(name));
        }
    }

    #[test]
    fn every_name_can_be_written(schema in "[a-zA-Z .\"$]{1,20}", name in "\\PC{1,15}") {
        let name = ViewName { schema, name };
        prop_assert_eq!(name.to_string().parse::<ViewName>(), Ok(name));
    }

    #[test]
    fn a_schedule_is_read_as_it_is_written(text in "manual|[0-9]{1,4}(ms|s|min|h|d)|([*0-9/,-]{1,4} ){4}[*0-9]|\\PC{0,12}") {
        if let Ok(schedule) = text.parse::<Schedule>() {
            prop_assert_eq!(schedule.to_string().parse::<Schedule>(), Ok(schedule));
        }
    }
}
