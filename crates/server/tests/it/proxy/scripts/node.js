// Everything node-postgres does that a proxy could get wrong; prints one line for each thing done.
const assert = require('node:assert');
const { Client, Pool } = require('pg');

async function main() {
  const client = new Client();
  await client.connect();
  const row = (await client.query('select $1::int + 1 as n, $2::text as t', [41, 'ü'])).rows[0];
  assert.deepStrictEqual(row, { n: 42, t: 'ü' });
  for (let number = 0; number < 10; number++) {
    const answer = await client.query({ name: 'double', text: 'select $1::int * 2 as n', values: [number] });
    assert.strictEqual(answer.rows[0].n, number * 2);
  }
  const several = await client.query('select 1 as a; select 2 as b');
  assert.strictEqual(several[1].rows[0].b, 2);
  console.log('prepared statements');

  const big = await client.query("select repeat('x', 20000000) as x");
  assert.strictEqual(big.rows[0].x.length, 20000000);
  const many = await client.query('select generate_series(1, 200000) as i');
  assert.strictEqual(many.rows.length, 200000);
  console.log('big results');

  await assert.rejects(client.query('select * from nowhere'), { code: '42P01', position: '15' });
  console.log('errors');

  const heard = new Promise((resolve) => client.on('notification', resolve));
  await client.query('listen news');
  const speaker = new Client();
  await speaker.connect();
  await speaker.query("notify news, 'rain'");
  assert.strictEqual((await heard).payload, 'rain');
  console.log('notifications');

  const sleeper = new Client({ application_name: 'sleeper' });
  await sleeper.connect();
  const asleep = sleeper.query('select pg_sleep(600)');
  const running = "select 1 from pg_stat_activity where application_name = 'sleeper' and wait_event = 'PgSleep'";
  while ((await speaker.query(running)).rows.length === 0);
  const { Connection } = require('pg');
  const canceller = new Connection();
  canceller.connect(Number(process.env.PGPORT), process.env.PGHOST);
  canceller.on('connect', () => canceller.cancel(sleeper.processID, sleeper.secretKey));
  await assert.rejects(asleep, { code: '57014' });
  console.log('cancel');
  await Promise.all([client.end(), speaker.end(), sleeper.end()]);

  const wrong = async (settings, expected) => {
    const refused = new Client(settings);
    refused.on('error', () => {});
    await assert.rejects(refused.connect(), expected);
  };
  await wrong({ password: 'wrong' }, { code: '28P01', severity: 'FATAL' });
  await wrong({ database: 'app@pr-43' }, { code: '28P01' });
  await wrong({ database: 'app' }, { code: '3D000', hint: /app@pr-42/ });
  console.log('refusals');

  const pool = new Pool({ max: 50 });
  const sums = await Promise.all(
    Array.from({ length: 50 }, async (_, number) => {
      const session = await pool.connect();
      return { session, n: (await session.query('select $1::int as n', [number])).rows[0].n };
    }),
  );
  assert.deepStrictEqual(sums.map((sum) => sum.n), Array.from({ length: 50 }, (_, number) => number));
  for (const { session } of sums) session.release();
  await pool.end();
  console.log('fifty sessions');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
