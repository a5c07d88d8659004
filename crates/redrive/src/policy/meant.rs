//! What was probably meant by a word that nobody knows.

/// As much of a word says which one is meant.
const BEGINNING_MIN: usize = 4;

/// The word that was probably meant: one that a slip of the fingers turns into what was written, or of which it is the
/// beginning.
pub fn closest<'w>(got: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let got = got.to_lowercase();
    let length = got.chars().count();
    let room = (length / 3).clamp(1, 3);
    let is_begun = |word: &str| got.len() >= BEGINNING_MIN && word.to_lowercase().starts_with(&got);
    // A text of any length may come here, and the distance takes its length in memory.
    let could_be = |word: &&str| word.chars().count().abs_diff(length) <= room || is_begun(word);
    known
        .into_iter()
        .filter(could_be)
        .map(|word| (distance(&got, &word.to_lowercase()), word))
        .filter(|(distance, word)| *distance <= room || is_begun(word))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// How many characters must be put in, taken out, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
