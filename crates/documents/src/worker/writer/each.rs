//! Writes of one request of which each is done for itself.

use super::{Asked, DocumentsError, Manner, Writer, Written, answered};

impl Writer {
    /// Has several writes done, each for itself: in this order where they conflict. They are handed over in portions of half
    /// of what one tenant may have waiting, one after the other. Where one finds no place, it and those after it are refused.
    pub async fn write_each(
        &self,
        asked: Vec<(Asked, Manner)>,
    ) -> Vec<Result<Written, DocumentsError>> {
        let mut each = Vec::with_capacity(asked.len());
        let mut asked = asked.into_iter();
        while asked.len() > 0 {
            let portion = asked.by_ref().take((self.places.share() / 2).max(1));
            let portion: Vec<_> = portion.map(|(one, manner)| (vec![one], manner)).collect();
            let count = portion.len();
            match self.push(portion) {
                Ok(answers) => {
                    for answer in answers {
                        let told = answered(answer).await.map_err(|refusal| refusal.error);
                        each.push(told.map(|written| written[0]));
                    }
                }
                // Later writes may refer to what these would have written.
                Err(error) => {
                    let left = count + std::mem::take(&mut asked).len();
                    each.extend(std::iter::repeat_n(Err(error), left));
                }
            }
        }
        each
    }
}
