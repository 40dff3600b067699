//! The encoding of keys of Rust types as bytes, and their order.
//!
//! | type | bytes | order |
//! |---|---|---|
//! | `u8` to `u128` | big-endian | of numbers |
//! | `i8` to `i128` | big-endian, the sign bit turned | of numbers |
//! | `bool` | 0 or 1 | false, true |
//! | `str`, `String` | UTF-8 | of code points |
//! | `[u8]`, `Vec<u8>`, `[u8; N]` | themselves | of bytes |
//! | `Uuid` (feature `uuid`) | its 16 bytes | of bytes; of version 7 by time |
//! | a tuple of 2 to 4 | its parts, one after the other | by the first part, then the next |
//!
//! A part of a tuple that is not the last, and whose type has keys of different lengths, is
//! escaped: a zero byte becomes `00 ff`, and `00 00` ends it. So no part is a prefix of another,
//! and a text sorts before all longer ones that begin with it. Tuples nest.
//!
//! Invariant: the bytes of two keys compare like the keys.

/// A type that can be the key of a [`TypedTable`](super::TypedTable).
///
/// ```
/// use upsweep::typed::Key;
///
/// /// Seconds since 1970, the latest ones first.
/// struct LatestFirst(u64);
///
/// impl Key for LatestFirst {
///     type Ref<'k> = u64;
///     type Owned = u64;
///     const BYTES: Option<usize> = Some(8);
///     fn to_ref(&self) -> u64 {
///         self.0
///     }
///     fn encode(seconds: u64, out: &mut Vec<u8>) {
///         u64::encode(!seconds, out);
///     }
///     fn decode(bytes: &[u8]) -> Option<u64> {
///         u64::decode(bytes).map(|turned| !turned)
///     }
/// }
/// ```
pub trait Key: 'static {
    /// How a key is given in a call: `&str` for text, a number for numbers, a tuple of such.
    type Ref<'k>: Copy;

    /// The type that a scan returns.
    type Owned;

    /// Length of every key in bytes; `None` if it varies.
    const BYTES: Option<usize>;

    /// This key in the form in which calls take it.
    fn to_ref(&self) -> Self::Ref<'_>;

    /// Appends the key, encoded so that bytes sort like keys.
    fn encode(key: Self::Ref<'_>, out: &mut Vec<u8>);

    /// The key that [`Key::encode`] wrote; `None` if these are other bytes.
    fn decode(bytes: &[u8]) -> Option<Self::Owned>;
}

/// The first parts of a tuple, or the beginning of a text or of bytes: what keys of type `K` can
/// have in common in [`TypedTable::prefix`](super::TypedTable::prefix).
pub trait KeyPrefix<'p, K: ?Sized> {
    /// Appends the common beginning of the bytes of all such keys.
    fn encode_prefix(self, out: &mut Vec<u8>);
}

/// The bytes of a key.
pub(in crate::structures) fn bytes_of<K: Key + ?Sized>(key: K::Ref<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(K::BYTES.unwrap_or(32));
    K::encode(key, &mut bytes);
    bytes
}

macro_rules! integer_key {
    ($($type:ty),+; $flip:expr) => {$(
        impl Key for $type {
            type Ref<'k> = $type;
            type Owned = $type;
            const BYTES: Option<usize> = Some(size_of::<$type>());
            fn to_ref(&self) -> $type {
                *self
            }
            fn encode(key: $type, out: &mut Vec<u8>) {
                const FLIP: $type = $flip as $type;
                out.extend_from_slice(&(key ^ FLIP).to_be_bytes());
            }
            fn decode(bytes: &[u8]) -> Option<$type> {
                const FLIP: $type = $flip as $type;
                Some(<$type>::from_be_bytes(bytes.try_into().ok()?) ^ FLIP)
            }
        }
    )+};
}

integer_key!(u8, u16, u32, u64, u128; 0);
integer_key!(i8; i8::MIN);
integer_key!(i16; i16::MIN);
integer_key!(i32; i32::MIN);
integer_key!(i64; i64::MIN);
integer_key!(i128; i128::MIN);

impl Key for bool {
    type Ref<'k> = bool;
    type Owned = bool;
    const BYTES: Option<usize> = Some(1);
    fn to_ref(&self) -> bool {
        *self
    }
    fn encode(key: bool, out: &mut Vec<u8>) {
        out.push(u8::from(key));
    }
    fn decode(bytes: &[u8]) -> Option<bool> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

macro_rules! text_key {
    ($($type:ty),+) => {$(
        impl Key for $type {
            type Ref<'k> = &'k str;
            type Owned = String;
            const BYTES: Option<usize> = None;
            fn to_ref(&self) -> &str {
                self
            }
            fn encode(key: &str, out: &mut Vec<u8>) {
                out.extend_from_slice(key.as_bytes());
            }
            fn decode(bytes: &[u8]) -> Option<String> {
                String::from_utf8(bytes.to_vec()).ok()
            }
        }

        impl<'p> KeyPrefix<'p, $type> for &'p str {
            fn encode_prefix(self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }
        }
    )+};
}

text_key!(str, String);

macro_rules! bytes_key {
    ($($type:ty),+) => {$(
        impl Key for $type {
            type Ref<'k> = &'k [u8];
            type Owned = Vec<u8>;
            const BYTES: Option<usize> = None;
            fn to_ref(&self) -> &[u8] {
                self
            }
            fn encode(key: &[u8], out: &mut Vec<u8>) {
                out.extend_from_slice(key);
            }
            fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
                Some(bytes.to_vec())
            }
        }

        impl<'p> KeyPrefix<'p, $type> for &'p [u8] {
            fn encode_prefix(self, out: &mut Vec<u8>) {
                out.extend_from_slice(self);
            }
        }

        impl<'p, const N: usize> KeyPrefix<'p, $type> for &'p [u8; N] {
            fn encode_prefix(self, out: &mut Vec<u8>) {
                out.extend_from_slice(self);
            }
        }
    )+};
}

bytes_key!([u8], Vec<u8>);

impl<const N: usize> Key for [u8; N] {
    type Ref<'k> = &'k [u8; N];
    type Owned = [u8; N];
    const BYTES: Option<usize> = Some(N);
    fn to_ref(&self) -> &[u8; N] {
        self
    }
    fn encode(key: &[u8; N], out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }
    fn decode(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
}

#[cfg(feature = "uuid")]
impl Key for uuid::Uuid {
    type Ref<'k> = uuid::Uuid;
    type Owned = uuid::Uuid;
    const BYTES: Option<usize> = Some(16);
    fn to_ref(&self) -> uuid::Uuid {
        *self
    }
    fn encode(key: uuid::Uuid, out: &mut Vec<u8>) {
        out.extend_from_slice(key.as_bytes());
    }
    fn decode(bytes: &[u8]) -> Option<uuid::Uuid> {
        uuid::Uuid::from_slice(bytes).ok()
    }
}

/// Appends a part of a tuple that others follow.
fn put_part<K: Key>(key: K::Ref<'_>, out: &mut Vec<u8>) {
    if K::BYTES.is_some() {
        return K::encode(key, out);
    }
    for byte in bytes_of::<K>(key) {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// Takes a part written by [`put_part`] from the beginning of `bytes`.
fn take_part<K: Key>(bytes: &mut &[u8]) -> Option<K::Owned> {
    if let Some(length) = K::BYTES {
        let (part, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        return K::decode(part);
    }
    let mut part = Vec::new();
    loop {
        match *bytes {
            [0, 0, rest @ ..] => {
                *bytes = rest;
                return K::decode(&part);
            }
            [0, 0xff, rest @ ..] => {
                part.push(0);
                *bytes = rest;
            }
            [0, ..] | [] => return None,
            [byte, rest @ ..] => {
                part.push(*byte);
                *bytes = rest;
            }
        }
    }
}

const fn sum(lengths: &[Option<usize>]) -> Option<usize> {
    let (mut total, mut index) = (0, 0);
    while index < lengths.len() {
        match lengths[index] {
            Some(length) => total += length,
            None => return None,
        }
        index += 1;
    }
    Some(total)
}

/// A tuple of keys: all parts except the last, then the last.
macro_rules! tuple_key {
    ($($part:ident $name:ident),+; $last:ident $last_name:ident) => {
        impl<$($part: Key,)+ $last: Key> Key for ($($part,)+ $last,) {
            type Ref<'k> = ($($part::Ref<'k>,)+ $last::Ref<'k>,);
            type Owned = ($($part::Owned,)+ $last::Owned,);
            const BYTES: Option<usize> = sum(&[$($part::BYTES,)+ $last::BYTES]);
            fn to_ref(&self) -> Self::Ref<'_> {
                let ($($name,)+ $last_name,) = self;
                ($($name.to_ref(),)+ $last_name.to_ref(),)
            }
            fn encode(($($name,)+ $last_name,): Self::Ref<'_>, out: &mut Vec<u8>) {
                $(put_part::<$part>($name, out);)+
                $last::encode($last_name, out);
            }
            fn decode(mut bytes: &[u8]) -> Option<Self::Owned> {
                Some(($(take_part::<$part>(&mut bytes)?,)+ $last::decode(bytes)?,))
            }
        }
    };
}

/// A prefix of tuples: its parts, and those that follow.
macro_rules! tuple_prefix {
    ($($head:ident $name:ident),+; $($rest:ident),+) => {
        impl<'p, $($head: Key,)+ $($rest: Key,)+> KeyPrefix<'p, ($($head,)+ $($rest,)+)>
            for ($($head::Ref<'p>,)+)
        {
            fn encode_prefix(self, out: &mut Vec<u8>) {
                let ($($name,)+) = self;
                $(put_part::<$head>($name, out);)+
            }
        }
    };
}

tuple_key!(A a; B b);
tuple_prefix!(A a; B);
tuple_key!(A a, B b; C c);
tuple_prefix!(A a; B, C);
tuple_prefix!(A a, B b; C);
tuple_key!(A a, B b, C c; D d);
tuple_prefix!(A a; B, C, D);
tuple_prefix!(A a, B b; C, D);
tuple_prefix!(A a, B b, C c; D);
