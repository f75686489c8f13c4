-- Written last: if this comment exists, the whole load was committed.
COMMENT ON TABLE flights IS
    'Every flight that left New York''s three airports in 2013. [egret demo flights, version 1]';
