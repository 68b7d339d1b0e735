//! Things that are counted: one list makes the enum, its names and its texts.

/// Declares an enum of countable things from rows of variant, name and English sentence.
///
/// The enum's numbers are array indices; `ALL`, `name` and `description` come with it. The name is
/// the one under which the count is shown, the sentence also the variant's documentation.
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
            /// All of them, in the order of their index.
            pub const ALL: &'static [$Enum] = &[$($Enum::$variant,)*];

            /// The name under which it is counted.
            pub const fn name(self) -> &'static str {
                match self { $($Enum::$variant => $name,)* }
            }

            /// One English sentence.
            pub const fn description(self) -> &'static str {
                match self { $($Enum::$variant => $text,)* }
            }
        }
    };
}
