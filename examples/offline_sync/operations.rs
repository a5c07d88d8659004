//! What an application does to its notes, each as an operation that can wait for the connection.

use redrive::Payload;
use serde::{Deserialize, Serialize};

/// Something that is sent to the far side.
pub trait Operation: Payload + Clone {
    /// About which note.
    fn note(&self) -> &str;
}

/// Where all of them wait: one behind the other, whatever they are.
pub(super) const QUEUE: &str = "operations";
/// Where all of them go: what is said of the connection is said of this.
pub(super) const CLOUD: &str = "cloud";

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident is $kind:literal)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            /// The note.
            pub note: String,
        }

        impl $name {
            /// Of this note.
            pub fn of(note: &str) -> $name {
                $name { note: note.to_owned() }
            }
        }

        impl Payload for $name {
            const KIND: &'static str = $kind;
            const QUEUE: &'static str = QUEUE;

            fn destination(&self) -> Option<String> {
                Some(CLOUD.to_owned())
            }
        }

        impl Operation for $name {
            fn note(&self) -> &str {
                &self.note
            }
        }
    )+};
}

operations! {
    /// Makes a note.
    CreateNote is "create_note"
    /// Changes its text.
    UpdateNote is "update_note"
    /// Takes it away.
    DeleteNote is "delete_note"
}
