//! Threads that work one after another, in the order of their tickets.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// A lock that is taken in the order in which its tickets were issued.
#[derive(Default)]
pub struct TicketLock {
    issued: Mutex<IssuedTickets>,
    changed: Condvar,
}

#[derive(Default)]
struct IssuedTickets {
    next: u64,
    open: BTreeSet<u64>,
}

/// A place in the order. It ends when the value is dropped.
pub struct Ticket {
    lock: Arc<TicketLock>,
    number: u64,
}

impl TicketLock {
    /// The next ticket.
    #[must_use]
    pub fn ticket(self: &Arc<Self>) -> Ticket {
        let mut issued = self.issued.lock();
        let number = issued.next;
        issued.next += 1;
        issued.open.insert(number);
        Ticket { lock: Arc::clone(self), number }
    }
}

impl Ticket {
    /// Returns when all earlier tickets have ended.
    pub fn wait(&self) {
        let mut issued = self.lock.issued.lock();
        while issued.open.first().is_some_and(|first| *first < self.number) {
            self.lock.changed.wait(&mut issued);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lock.issued.lock().open.remove(&self.number);
        self.lock.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn tickets_are_served_in_their_order_also_when_one_is_given_up() {
        let lock = Arc::new(TicketLock::default());
        let [first, given_up, last] = [(); 3].map(|()| lock.ticket());
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiting = thread::spawn({
            let order = Arc::clone(&order);
            move || {
                last.wait();
                order.lock().push("last");
            }
        });
        drop(given_up);
        first.wait();
        order.lock().push("first");
        drop(first);
        waiting.join().unwrap();
        assert_eq!(*order.lock(), ["first", "last"]);
    }
}
