-- Written last: whoever finds this comment knows that the load was committed whole.
COMMENT ON TABLE flights IS
    'Every flight that left New York''s three airports in 2013. [egret demo flights, version 1]';
