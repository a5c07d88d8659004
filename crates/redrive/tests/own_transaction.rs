//! A job in a transaction of one's own, with the real libraries on a real PostgreSQL: it is there if and only if that
//! commits, whatever language sends it, and nobody else waits meanwhile.

#[path = "own_transaction/adapters.rs"]
mod adapters;
#[path = "own_transaction/function.rs"]
mod function;
#[path = "own_transaction/kit.rs"]
mod kit;
#[path = "own_transaction/open.rs"]
mod open;
