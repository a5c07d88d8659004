//! Columns for people: as wide as what stands in them, and as wide as the terminal together.

use redrive_server::printable;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::out::{self, Colour};

/// Between two columns.
const GAP: usize = 2;
/// A column that is cut keeps this much.
const WIDTH_MIN: usize = 12;

/// One cell. Whatever stands in it can do nothing to a terminal.
pub(crate) struct Cell {
    text: String,
    colour: Option<Colour>,
    is_number: bool,
}

/// Text from anywhere.
pub(crate) fn text(text: impl AsRef<str>) -> Cell {
    Cell { text: printable(text.as_ref()).into_owned(), colour: None, is_number: false }
}

/// A number, which stands on the right.
pub(crate) fn number(number: impl ToString) -> Cell {
    Cell { text: number.to_string(), colour: None, is_number: true }
}

impl Cell {
    /// In this colour.
    pub(crate) fn coloured(self, colour: Option<Colour>) -> Cell {
        Cell { colour, ..self }
    }
}

/// Rows under their headings. The last column takes what room is left.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(headings: &[&'static str]) -> Table {
        Table { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The lines, within this width; as wide as they need to be where there is none.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let columns = self.headings.len();
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| heading.width()).collect();
        for row in &self.rows {
            for (wide, cell) in widths.iter_mut().zip(row) {
                *wide = (*wide).max(cell.text.width());
            }
        }
        if let (Some(width), Some(last)) = (width, widths.last().copied()) {
            let others = widths[..columns - 1].iter().map(|wide| wide + GAP).sum::<usize>();
            widths[columns - 1] = last.min(width.saturating_sub(others).max(WIDTH_MIN));
        }
        let is_number =
            |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(|cell| cell.is_number));
        let heading = self.headings.iter().enumerate().map(|(column, heading)| {
            let dim = heading.to_uppercase();
            (dim, Some(Colour::Dim), is_number(column))
        });
        let mut lines = vec![line(heading, &widths)];
        for row in &self.rows {
            lines
                .push(line(row.iter().map(|cell| (cell.text.clone(), cell.colour, cell.is_number)), &widths));
        }
        lines
    }

    /// To stdout.
    pub(crate) fn print(&self) {
        self.lines(out::width()).iter().for_each(|line| out::answer(line));
    }
}

fn line(cells: impl Iterator<Item = (String, Option<Colour>, bool)>, widths: &[usize]) -> String {
    let mut line = String::new();
    for (column, ((text, colour, is_number), width)) in cells.zip(widths).enumerate() {
        let cut = cut(&text, *width);
        let padding = " ".repeat(width.saturating_sub(cut.width()));
        let shown = colour.map_or_else(|| cut.clone(), |colour| out::coloured(&cut, colour));
        line += &if is_number { format!("{padding}{shown}") } else { format!("{shown}{padding}") };
        if column + 1 < widths.len() {
            line += &" ".repeat(GAP);
        }
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
    fn a_cell_cannot_steer_the_terminal() {
        let mut table = Table::new(&["message"]);
        table.row(vec![text("a\u{1b}[2J\nb")]);
        assert_eq!(table.lines(None)[1], "a\\u{1b}[2J\\nb");
    }
}
