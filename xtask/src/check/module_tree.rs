//! The modules of one crate and the meaning of their paths. `mod x;` alone is not a dependency. A path that
//! ends in an item is a dependency on the file that defines the item, even if another file exports it again.

use std::collections::{BTreeMap, BTreeSet};

use syn::Item;

use super::module_paths::{ModulePath, collect};
use super::sources::{Sources, has_cfg_test, module_folder};

/// The maximum number of imports that are followed for one path.
const DEPTH: usize = 32;

#[derive(Default)]
pub(crate) struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    imports: BTreeMap<String, ModulePath>,
    globs: Vec<ModulePath>,
    mentions: Vec<ModulePath>,
}

/// The modules of a crate, its root first.
pub(crate) struct ModuleTree {
    modules: Vec<Module>,
}

enum Meaning {
    Module(usize),
    ItemOf(String),
}

impl ModuleTree {
    /// Reads the tree below a crate's root file, without modules that exist only in tests.
    pub(crate) fn read(sources: &Sources, root: &str) -> Self {
        let mut tree = Self { modules: Vec::new() };
        if let Some(file) = sources.rust.get(root) {
            tree.add(sources, root, &module_folder(root), None, &file.items);
        }
        tree
    }

    fn add(
        &mut self,
        sources: &Sources,
        file: &str,
        folder: &str,
        parent: Option<usize>,
        items: &[Item],
    ) -> usize {
        let collected = collect(items);
        let own = self.modules.len();
        self.modules.push(Module {
            file: file.to_owned(),
            parent,
            items: collected.items,
            imports: collected.imports,
            globs: collected.globs,
            mentions: collected.mentions,
            ..Module::default()
        });
        for item in items {
            if let Item::Mod(module) = item
                && !has_cfg_test(&module.attrs)
            {
                let name = module.ident.to_string();
                let below = format!("{folder}/{name}");
                let child = match &module.content {
                    Some((_, items)) => Some(self.add(sources, file, &below, Some(own), items)),
                    None => [format!("{below}.rs"), format!("{below}/mod.rs")].into_iter().find_map(|path| {
                        let file = sources.rust.get(&path)?;
                        Some(self.add(sources, &path, &below, Some(own), &file.items))
                    }),
                };
                if let Some(child) = child {
                    self.modules[own].children.insert(name, child);
                }
            }
        }
        own
    }

    /// All pairs of files in which the first file uses an item that the second defines.
    pub(crate) fn edges(&self) -> BTreeSet<(String, String)> {
        let mut edges = BTreeSet::new();
        for (own, module) in self.modules.iter().enumerate() {
            for path in module.imports.values().chain(&module.globs).chain(&module.mentions) {
                if let Some(Meaning::ItemOf(file)) = self.resolve(own, path, DEPTH)
                    && file != module.file
                {
                    edges.insert((module.file.clone(), file));
                }
            }
        }
        edges
    }

    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<Meaning> {
        let depth = depth.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let mut meaning = match first.as_str() {
            "crate" => Meaning::Module(0),
            "self" => Meaning::Module(module),
            "super" => Meaning::Module(self.modules[module].parent?),
            name => self.lookup(module, name, depth)?,
        };
        for name in rest {
            meaning = match meaning {
                Meaning::Module(inner) if name == "super" => Meaning::Module(self.modules[inner].parent?),
                Meaning::Module(inner) if name == "self" => Meaning::Module(inner),
                Meaning::Module(inner) => self.lookup(inner, name, depth)?,
                item @ Meaning::ItemOf(_) => return Some(item),
            };
        }
        Some(meaning)
    }

    fn lookup(&self, module: usize, name: &str, depth: usize) -> Option<Meaning> {
        let depth = depth.checked_sub(1)?;
        let names = &self.modules[module];
        if names.items.contains(name) {
            return Some(Meaning::ItemOf(names.file.clone()));
        }
        if let Some(path) = names.imports.get(name)
            && let Some(meaning) = self.resolve(module, path, depth)
        {
            return Some(meaning);
        }
        if let Some(child) = names.children.get(name) {
            return Some(Meaning::Module(*child));
        }
        names.globs.iter().find_map(|path| match self.resolve(module, path, depth)? {
            Meaning::Module(inner) if inner != module => self.lookup(inner, name, depth),
            _ => None,
        })
    }
}
