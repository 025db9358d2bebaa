//! Names that the vocabulary retired. The table is `retired.toml`.

use anyhow::Result;
use serde::Deserialize;
use syn::Ident;
use syn::visit::{self, Visit};

use super::finding::RuleFinding;
use super::sources::{Sources, is_own, is_test_function};

const RULE: &str = "retired-name";

#[derive(Deserialize)]
struct Table {
    retired: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    /// In snake case; a type is compared in the same form.
    names: Vec<String>,
    kinds: Vec<NameKind>,
    /// Whether a name that contains one of `names` as a word is retired too.
    #[serde(default)]
    words: bool,
    /// Path prefixes to which the row is limited; empty for all files.
    #[serde(default, rename = "where")]
    places: Vec<String>,
    /// Path prefixes that may use the name.
    #[serde(default)]
    except: Vec<String>,
    instead: String,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum NameKind {
    Type,
    Module,
    Function,
    Field,
    Constant,
}

impl NameKind {
    fn word(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Module => "module",
            Self::Function => "function",
            Self::Field => "field",
            Self::Constant => "constant",
        }
    }
}

/// Finds every definition with a retired name.
pub(crate) fn check(sources: &Sources) -> Result<Vec<RuleFinding>> {
    let table: Table = toml::from_str(include_str!("retired.toml"))?;
    let mut findings = Vec::new();
    for (path, file) in sources.rust.iter().filter(|(path, _)| !is_own(path)) {
        let mut definitions = Definitions(Vec::new());
        definitions.visit_file(file);
        for (kind, name) in definitions.0 {
            if let Some(row) = table.retired.iter().find(|row| row.retires(kind, &name, path)) {
                let kind = kind.word();
                findings
                    .push(RuleFinding::new(RULE, format!("{path}: {kind} `{name}`: use {}", row.instead)));
            }
        }
    }
    Ok(findings)
}

impl Row {
    fn retires(&self, kind: NameKind, name: &str, path: &str) -> bool {
        let snake = snake_case(name);
        let named = |retired: &String| {
            if self.words { has_words(&snake, retired) } else { snake == *retired }
        };
        let below = |places: &[String]| places.iter().any(|place| path.starts_with(place.as_str()));
        self.kinds.contains(&kind)
            && (self.places.is_empty() || below(&self.places))
            && !below(&self.except)
            && self.names.iter().any(named)
    }
}

fn has_words(name: &str, words: &str) -> bool {
    format!("_{name}_").contains(&format!("_{words}_"))
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut last_is_lower = false;
    for letter in name.chars() {
        if letter.is_uppercase() && last_is_lower {
            snake.push('_');
        }
        last_is_lower = letter.is_lowercase() || letter.is_ascii_digit();
        snake.extend(letter.to_lowercase());
    }
    snake
}

struct Definitions(Vec<(NameKind, String)>);

impl Definitions {
    fn add(&mut self, kind: NameKind, name: &Ident) {
        self.0.push((kind, name.to_string()));
    }
}

impl<'ast> Visit<'ast> for Definitions {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Struct(item) => self.add(NameKind::Type, &item.ident),
            syn::Item::Enum(item) => self.add(NameKind::Type, &item.ident),
            syn::Item::Union(item) => self.add(NameKind::Type, &item.ident),
            syn::Item::Trait(item) => self.add(NameKind::Type, &item.ident),
            syn::Item::Type(item) => self.add(NameKind::Type, &item.ident),
            syn::Item::Mod(item) => self.add(NameKind::Module, &item.ident),
            // The name of a test is a sentence, in which every English word is allowed.
            syn::Item::Fn(item) if !is_test_function(&item.attrs) => {
                self.add(NameKind::Function, &item.sig.ident);
            }
            syn::Item::Const(item) => self.add(NameKind::Constant, &item.ident),
            syn::Item::Static(item) => self.add(NameKind::Constant, &item.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        for inner in &item.items {
            match inner {
                // The trait determines the names in its implementations.
                syn::ImplItem::Fn(function) if item.trait_.is_none() => {
                    self.add(NameKind::Function, &function.sig.ident);
                }
                syn::ImplItem::Const(constant) if item.trait_.is_none() => {
                    self.add(NameKind::Constant, &constant.ident);
                }
                _ => {}
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.add(NameKind::Function, &function.sig.ident);
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.add(NameKind::Field, name);
        }
        visit::visit_field(self, field);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources::sources;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&sources(&[(path, text)])).unwrap().into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_retired_type_module_function_field_and_constant_are_found() {
        let text = "struct HostWish { patience: u8 } mod herald {} impl HostWish { fn carry() {} } const PATIENCE: u8 = 1;";
        let found = found("crates/a/src/lib.rs", text).join("\n");
        for part in [
            "type `HostWish`",
            "field `patience`",
            "module `herald`",
            "function `carry`",
            "constant `PATIENCE`",
        ] {
            assert!(found.contains(part), "{part} in {found}");
        }
    }

    #[test]
    fn a_name_is_allowed_in_the_excepted_paths() {
        assert_eq!(found("crates/plan/src/output.rs", "pub struct Plan;"), Vec::<String>::new());
        assert_eq!(found("crates/operations/src/lib.rs", "pub struct Plan;").len(), 1);
    }

    #[test]
    fn the_name_of_a_test_is_a_sentence() {
        assert_eq!(found("crates/a/src/lib.rs", "#[test] fn carry_on() {}"), Vec::<String>::new());
        assert_eq!(found("crates/a/src/lib.rs", "fn carry_on() {}").len(), 1);
    }

    #[test]
    fn a_word_within_another_word_is_not_a_retired_name() {
        assert_eq!(
            found("crates/a/src/lib.rs", "struct Workspace; fn wishful() {} fn steal() {}"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn words_of_a_type_are_split_at_capitals() {
        assert_eq!(snake_case("HostWish2Go"), "host_wish2_go");
        assert_eq!(snake_case("PATIENCE"), "patience");
    }
}
