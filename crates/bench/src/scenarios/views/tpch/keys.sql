-- Primary keys, and indexes of the foreign keys that none of those begins with.
ALTER TABLE tpch.region ADD PRIMARY KEY (r_regionkey);
ALTER TABLE tpch.nation ADD PRIMARY KEY (n_nationkey);
ALTER TABLE tpch.supplier ADD PRIMARY KEY (s_suppkey);
ALTER TABLE tpch.part ADD PRIMARY KEY (p_partkey);
ALTER TABLE tpch.partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey);
ALTER TABLE tpch.customer ADD PRIMARY KEY (c_custkey);
ALTER TABLE tpch.orders ADD PRIMARY KEY (o_orderkey);
ALTER TABLE tpch.lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber);
CREATE INDEX ON tpch.nation (n_regionkey);
CREATE INDEX ON tpch.supplier (s_nationkey);
CREATE INDEX ON tpch.partsupp (ps_suppkey);
CREATE INDEX ON tpch.customer (c_nationkey);
CREATE INDEX ON tpch.orders (o_custkey);
CREATE INDEX ON tpch.lineitem (l_partkey, l_suppkey);
CREATE INDEX ON tpch.lineitem (l_suppkey)
