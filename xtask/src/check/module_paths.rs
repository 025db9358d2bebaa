//! The names that a module defines and the paths that it mentions.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, ItemUse, UseTree};

use super::sources::has_cfg_test;

/// The segments of a path.
pub(crate) type ModulePath = Vec<String>;

/// The items, imports and paths of one module, without its child modules.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: BTreeMap<String, ModulePath>,
    pub(crate) globs: Vec<ModulePath>,
    pub(crate) mentions: Vec<ModulePath>,
}

/// Reads the items of a module, without those that exist only in tests.
pub(crate) fn collect(items: &[Item]) -> Collected {
    let mut collected = Collected::default();
    // An import of the module is read before one in a function: it takes precedence for the same name.
    for item in items.iter().filter(|item| matches!(item, Item::Use(_))) {
        collected.visit_item(item);
    }
    for item in items.iter().filter(|item| !matches!(item, Item::Use(_))) {
        if let Some(name) = name_of(item) {
            collected.items.insert(name);
        }
        collected.visit_item(item);
    }
    collected
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn attributes_of(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl Collected {
    fn add_use(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| {
            let name = name.to_string();
            // `use a::{self}` names `a`.
            if name == "self" && !before.is_empty() { before.to_vec() } else { [before, &[name]].concat() }
        };
        match tree {
            UseTree::Path(path) => self.add_use(&[before, &[path.ident.to_string()]].concat(), &path.tree),
            UseTree::Name(name) => self.add_import(with(&name.ident)),
            UseTree::Rename(rename) => {
                let path = with(&rename.ident);
                self.mentions.push(path.clone());
                self.imports.entry(rename.rename.to_string()).or_insert(path);
            }
            UseTree::Glob(_) => self.globs.push(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(before, tree)),
            #[allow(unreachable_patterns)]
            _ => {}
        }
    }

    fn add_import(&mut self, path: ModulePath) {
        if let Some(name) = path.last().cloned() {
            self.mentions.push(path.clone());
            self.imports.entry(name).or_insert(path);
        }
    }

    /// The paths within a macro, whose tokens have no syntax yet.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (ModulePath::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.end_path(&mut path);
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end_path(&mut path);
                    colons = 0;
                    self.add_tokens(group.stream());
                }
                _ => {
                    self.end_path(&mut path);
                    colons = 0;
                }
            }
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut ModulePath) {
        let path = std::mem::take(path);
        // A single small word is more often a variable than an item.
        let is_type = |name: &String| name.starts_with(char::is_uppercase);
        if path.len() > 1 || path.first().is_some_and(is_type) {
            self.mentions.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for Collected {
    fn visit_item(&mut self, item: &'ast Item) {
        // A child module has its own names.
        if !has_cfg_test(attributes_of(item)) && !matches!(item, Item::Mod(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.add_use(&[], &item.tree);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !has_cfg_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.mentions.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(call.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.add_tokens(list.tokens.clone());
    }
}
