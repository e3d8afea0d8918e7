//! Compact integers for change operations: 7 bits a byte, lowest first.
//!
//! Reading never panics: a short or overlong input gives `None`, which the caller turns into
//! "corrupt log record".

/// Appends `value` in 1 to 10 bytes.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7F) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes values off the front of a byte string.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                return None;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        u16::try_from(self.varint()?).ok()
    }

    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    #[inline]
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        if len > self.0.len() {
            return None;
        }
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_their_edges() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut reader = Reader(&out);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn overlong_and_cut_inputs_are_refused() {
        assert_eq!(Reader(&[0x80]).varint(), None);
        assert_eq!(Reader(&[0xFF; 10]).varint(), None);
        assert_eq!(Reader(&[0xFF, 0xFF, 0x7F]).u16(), None);
        assert_eq!(Reader(&[1, 2]).bytes(3), None);
    }
}
