//! Tables as text.

use console::measure_text_width;

/// A table. Some columns are shown with `-o wide` only.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextTable {
    titles: Vec<&'static str>,
    wide: Vec<bool>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl TextTable {
    /// A table with these columns, which are always shown.
    pub(crate) fn new(titles: &[&'static str]) -> Self {
        Self { titles: titles.to_vec(), wide: vec![false; titles.len()], rows: Vec::new(), indent: 0 }
    }

    /// Adds columns that are shown with `-o wide` only.
    #[must_use]
    pub(crate) fn wide(mut self, titles: &[&'static str]) -> Self {
        self.titles.extend_from_slice(titles);
        self.wide.resize(self.titles.len(), true);
        self
    }

    /// Indents every line by this number of spaces.
    #[must_use]
    pub(crate) fn indent(mut self, indent: usize) -> Self {
        self.indent = indent;
        self
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<_> = cells.into_iter().collect();
        cells.resize(self.titles.len(), String::new());
        self.rows.push(cells);
    }

    /// The table as text, with two spaces between columns and no trailing spaces. Empty if the table has no
    /// row.
    pub(crate) fn text(&self, wide: bool) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let shown: Vec<usize> = (0..self.titles.len()).filter(|&i| wide || !self.wide[i]).collect();
        let width = |i: usize| {
            let cells = self.rows.iter().map(|row| measure_text_width(&row[i]));
            cells.chain([measure_text_width(self.titles[i])]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = shown.iter().map(|&i| width(i)).collect();
        let line = |cell: &dyn Fn(usize) -> String| {
            let mut text = " ".repeat(self.indent);
            for (&i, &width) in shown.iter().zip(&widths) {
                let cell = cell(i);
                let fill = width - measure_text_width(&cell).min(width);
                text.push_str(&cell);
                text.push_str(&" ".repeat(fill + 2));
            }
            text.trim_end().to_owned() + "\n"
        };
        let titled = self.titles.iter().any(|title| !title.is_empty());
        let head = if titled { line(&|i| self.titles[i].to_owned()) } else { String::new() };
        self.rows.iter().fold(head, |text, row| text + &line(&|i| row[i].clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns_and_hides_the_wide_ones() {
        let mut table = TextTable::new(&["NAME", "STATE"]).wide(&["UID"]);
        table.row(["* demo".into(), "Ready".into(), "u1".into()]);
        table.row(["  x".into(), "✓".into()]);
        assert_eq!(table.text(false), "NAME    STATE\n* demo  Ready\n  x     ✓\n");
        assert_eq!(table.text(true), "NAME    STATE  UID\n* demo  Ready  u1\n  x     ✓\n");
    }
}
