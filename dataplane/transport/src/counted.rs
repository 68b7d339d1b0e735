//! A macro that makes the enum, the names and the texts of a list of counters.

/// Declares an enum of counters from rows of variant, name and English sentence.
///
/// Variants are array indices. The macro adds `ALL`, `name` and `description`. The name is the one
/// under which the counter is exported; the sentence is also the variant's documentation.
#[macro_export]
macro_rules! counted {
    ($(#[$attribute:meta])* pub enum $Enum:ident {
        $($variant:ident $name:literal $text:literal)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum $Enum {
            $(#[doc = $text] $variant,)*
        }

        impl $Enum {
            /// All variants, in the order of their index.
            pub const ALL: &'static [$Enum] = &[$($Enum::$variant,)*];

            /// Name under which the counter is exported.
            pub const fn name(self) -> &'static str {
                match self { $($Enum::$variant => $name,)* }
            }

            /// Description of the counter, one English sentence.
            pub const fn description(self) -> &'static str {
                match self { $($Enum::$variant => $text,)* }
            }
        }
    };
}
