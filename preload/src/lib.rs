//! libplimsoll.so.
