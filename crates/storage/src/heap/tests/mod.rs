//! Tests of the heap, from the bytes of a page to whole tables.

mod pages;
