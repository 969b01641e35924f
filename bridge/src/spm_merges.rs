//! SentencePiece BPE vocabularies carry a score per piece and no merge list. This rebuilds the list.

use crate::{Failure, Kind, Outcome};
use std::collections::HashMap;

/// Bound on the work over hostile vocabularies: the sum of squared piece lengths. Real ones stay below 10^8.
const MAX_WORK: u64 = 4_000_000_000;

/// `file`: what errors call the vocabulary.
/// Every way to cut a mergeable piece into two pieces of the vocabulary, best score first. Applying merges in this order
/// joins, at each moment, the neighbours whose union has the highest score, which is what SentencePiece does.
/// Equal scores (and the several cuts of one piece) are ordered by piece id, then left id, then right id.
pub(crate) fn merges_from_scores(
    file: &str,
    pieces: &[&str],
    scores: &[f32],
    mergeable: impl Fn(usize) -> bool,
) -> Outcome<Vec<(String, String)>> {
    let ids: HashMap<&str, u32> = pieces.iter().enumerate().map(|(id, piece)| (*piece, id as u32)).collect();
    let work: u64 =
        pieces.iter().map(|piece| (piece.len() as u64).saturating_mul(piece.len() as u64)).fold(0, u64::saturating_add);
    if work > MAX_WORK {
        return Err(Failure::new(Kind::Limit, format!("{file}: the pieces are too long to be a real vocabulary")));
    }
    let mut merges: Vec<(u32, u32, u32)> = Vec::with_capacity(pieces.len() * 2);
    for (id, piece) in pieces.iter().enumerate().filter(|(id, _)| mergeable(*id)) {
        for (cut, _) in piece.char_indices().skip(1) {
            if let (Some(&left), Some(&right)) = (ids.get(&piece[..cut]), ids.get(&piece[cut..])) {
                merges.push((id as u32, left, right));
            }
        }
    }
    merges.sort_by(|a, b| scores[b.0 as usize].total_cmp(&scores[a.0 as usize]).then(a.cmp(b)));
    Ok(merges
        .into_iter()
        .map(|(_, left, right)| (pieces[left as usize].to_string(), pieces[right as usize].to_string()))
        .collect())
}
