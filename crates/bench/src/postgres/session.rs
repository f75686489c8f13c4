//! A connection without a task of its own, for the odd statement whose answer is looked at.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio_postgres::{Client, Error, NoTls};

use super::ConnectionTarget;

/// What reads and writes; ends when the connection does.
type Driver = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// One connection, driven by the task that uses it.
pub struct Session {
    client: Client,
    /// `None` when the connection has ended: dropping it tells the client.
    driver: Option<Driver>,
}

impl ConnectionTarget {
    /// Connects.
    ///
    /// # Errors
    /// The server's, or that it cannot be reached.
    pub(crate) async fn connect_session(&self) -> Result<Session, Error> {
        let (client, driver): (Client, Driver) = match &self.tls {
            None => {
                let (client, driver) = self.config.connect(NoTls).await?;
                (client, Box::pin(driver))
            }
            Some(tls) => {
                let (client, driver) = self.config.connect(tls.clone()).await?;
                (client, Box::pin(driver))
            }
        };
        Ok(Session { client, driver: Some(driver) })
    }
}

impl Session {
    /// Does something with the client while the connection is driven.
    ///
    /// # Errors
    /// What the work says; an end of the connection is told to the work by the client.
    pub async fn with<'a, T, F>(
        &'a mut self,
        work: impl FnOnce(&'a Client) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + 'a,
    {
        let Self { client, driver } = self;
        let mut work = pin!(work(client));
        poll_fn(|context| {
            // First the work, which may have something to send, then the connection, which sends it
            // and may have an answer, and then the work once more to take that.
            if let Poll::Ready(result) = work.as_mut().poll(context) {
                return Poll::Ready(result);
            }
            if let Some(connection) = driver
                && connection.as_mut().poll(context).is_ready()
            {
                *driver = None;
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Leaves the driving to a task; how the connection ends is told to the client.
    pub(super) fn into_client(self) -> Client {
        if let Some(driver) = self.driver {
            tokio::spawn(driver);
        }
        self.client
    }
}
