SELECT carrier, max(delay) AS delay FROM late_by_carrier GROUP BY carrier
