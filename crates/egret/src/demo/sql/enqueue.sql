SELECT count(egret.enqueue('delays', jsonb_build_object('flight_id', flight_id), tags => ARRAY[carrier]))
FROM flights WHERE (month, day) = (3, 8) AND arr_delay >= 120
