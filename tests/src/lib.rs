//! What the job tests share.
