//! Columns for people: as wide as what stands in them, and as wide as the terminal together.

use redrive_server::printable;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::out::{self, Colour};

/// Between two columns.
const GAP: usize = 2;
/// The last column keeps this much, as long as others can give way.
const LAST_MIN: usize = 12;
/// A column that is cut keeps this much.
const WIDTH_MIN: usize = 4;

/// One cell. Whatever stands in it can do nothing to a terminal.
pub(crate) struct Cell {
    text: String,
    colour: Option<Colour>,
    is_number: bool,
    /// A part of it is worth nothing.
    is_whole: bool,
}

/// Text from anywhere.
pub(crate) fn text(text: impl AsRef<str>) -> Cell {
    let text = printable(text.as_ref()).into_owned();
    Cell { text, colour: None, is_number: false, is_whole: false }
}

/// Something to be copied, which is never cut.
pub(crate) fn id(id: impl AsRef<str>) -> Cell {
    Cell { is_whole: true, ..text(id) }
}

/// A number, which stands on the right.
pub(crate) fn number(number: impl ToString) -> Cell {
    Cell { text: number.to_string(), colour: None, is_number: true, is_whole: true }
}

impl Cell {
    /// In this colour.
    pub(crate) fn coloured(self, colour: Option<Colour>) -> Cell {
        Cell { colour, ..self }
    }
}

/// Rows under their headings. The last column takes what room is left; where that is too little, the others give way.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    spare: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(headings: &[&'static str]) -> Table {
        Table { headings: headings.to_vec(), spare: Vec::new(), rows: Vec::new() }
    }

    /// These columns are left out where there is no room for them, the first of them first.
    pub(crate) fn spare(self, spare: &[&'static str]) -> Table {
        Table { spare: spare.to_vec(), ..self }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The lines, within this width; as wide as they need to be where there is none.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let columns = self.columns(width);
        let is_number =
            |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(|cell| cell.is_number));
        let heading = |(column, width): &(usize, usize)| {
            let dim = self.headings[*column].to_uppercase();
            (dim, Some(Colour::Dim), is_number(*column), *width)
        };
        let mut lines = vec![line(columns.iter().map(heading))];
        for row in &self.rows {
            let cell = |(column, width): &(usize, usize)| {
                row.get(*column).map(|cell| (cell.text.clone(), cell.colour, cell.is_number, *width))
            };
            lines.push(line(columns.iter().filter_map(cell)));
        }
        lines
    }

    /// The columns that are shown, each with its width.
    fn columns(&self, width: Option<usize>) -> Vec<(usize, usize)> {
        let wide = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.width());
            cells.max().unwrap_or(0).max(self.headings[column].width())
        };
        let mut columns: Vec<(usize, usize)> =
            (0..self.headings.len()).map(|column| (column, wide(column))).collect();
        let (Some(width), Some((_, last))) = (width, columns.last().copied()) else { return columns };
        fit_last(&mut columns, last, width);
        for spare in &self.spare {
            if too_wide(&columns, width) > 0 {
                columns.retain(|(column, _)| self.headings[*column] != *spare);
                fit_last(&mut columns, last, width);
            }
        }
        for _ in 0..too_wide(&columns, width) {
            let can_be_cut = |column: usize| {
                !self.rows.iter().any(|row| row.get(column).is_some_and(|cell| cell.is_whole))
            };
            let widest = columns
                .iter_mut()
                .filter(|(column, wide)| *wide > WIDTH_MIN && can_be_cut(*column))
                .max_by_key(|(_, wide)| *wide);
            widest.into_iter().for_each(|(_, wide)| *wide -= 1);
        }
        columns
    }

    /// To stdout.
    pub(crate) fn print(&self) {
        self.lines(out::width()).iter().for_each(|line| out::answer(line));
    }
}

/// How much there is too much.
fn too_wide(columns: &[(usize, usize)], width: usize) -> usize {
    let all: usize = columns.iter().map(|(_, wide)| wide + GAP).sum();
    all.saturating_sub(width + GAP)
}

/// The last column as wide as it would be, or as there is room.
fn fit_last(columns: &mut [(usize, usize)], wanted: usize, width: usize) {
    let Some((last, others)) = columns.split_last_mut() else { return };
    let taken: usize = others.iter().map(|(_, wide)| wide + GAP).sum();
    last.1 = wanted.min(width.saturating_sub(taken).max(LAST_MIN));
}

fn line(cells: impl Iterator<Item = (String, Option<Colour>, bool, usize)>) -> String {
    let mut line = String::new();
    for (text, colour, is_number, width) in cells {
        let cut = cut(&text, width);
        let padding = " ".repeat(width.saturating_sub(cut.width()));
        let shown = colour.map_or_else(|| cut.clone(), |colour| out::coloured(&cut, colour));
        line += &if is_number { format!("{padding}{shown}") } else { format!("{shown}{padding}") };
        line += &" ".repeat(GAP);
    }
    line.trim_end().to_owned()
}

/// The text within this width, with a sign where something is missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used + 1 > width {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

/// Names and what stands behind them, one on a line.
pub(crate) fn facts(facts: &[(&str, String)]) {
    let widest = facts.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    for (name, value) in facts {
        let padding = " ".repeat(widest - name.width());
        let line = format!("{}{padding}  {value}", out::coloured(name, Colour::Dim));
        out::answer(line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_in_every_script_and_the_last_one_gives_way() {
        let mut table = Table::new(&["name", "jobs", "message"]);
        table.row(vec![text("mail"), number(7), text("short")]);
        table.row(vec![text("日本"), number(1234), text("a message that is longer than there is room for")]);
        assert_eq!(
            table.lines(Some(34)),
            ["NAME  JOBS  MESSAGE", "mail     7  short", "日本  1234  a message that is lon…"]
        );
        assert_eq!(table.lines(None)[2].chars().count(), 57);
    }

    #[test]
    fn a_narrow_terminal_has_whole_rows_and_whole_ids() {
        let mut table = Table::new(&["id", "state", "queue", "enqueued", "why"]).spare(&["enqueued"]);
        let row = |id_of: &str| {
            vec![
                id(id_of),
                text("waiting"),
                text("a-long-queue"),
                text("5 min ago"),
                text("one two three four"),
            ]
        };
        table.row(row("0123456789"));
        let at = |width: usize| table.lines(Some(width))[1].clone();
        assert_eq!(at(80), "0123456789  waiting  a-long-queue  5 min ago  one two three four");
        assert_eq!(at(58), "0123456789  waiting  a-long-queue  5 min ago  one two thr…");
        assert_eq!(at(54), "0123456789  waiting  a-long-queue  one two three four");
        assert_eq!(at(50), "0123456789  waiting  a-long-queue  one two three …");
        assert_eq!(at(40), "0123456789  waiting  a-long-q…  one two…");
        assert_eq!(at(30), "0123456789  wait…  a-lo…  one…");
        assert!(table.lines(Some(30)).iter().all(|line| line.width() <= 30));
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal() {
        let mut table = Table::new(&["message"]);
        table.row(vec![text("a\u{1b}[2J\nb")]);
        assert_eq!(table.lines(None)[1], "a\\u{1b}[2J\\nb");
    }
}
