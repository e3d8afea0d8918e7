//! The one place that storage code takes its synchronisation primitives from.
//!
//! Ordinarily these are `std` atomics and `parking_lot` locks. Built with
//! `RUSTFLAGS="--cfg shuttle"` they are the model checker's, so the same code runs under
//! randomly chosen thread schedules. Code that wants to be checked uses nothing else.
//!
//! Locks here do not poison: a panic inside a critical section ends the process, and
//! elsewhere the guarded data is left consistent.

#[cfg(not(shuttle))]
mod real {
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::sync::Arc;
    pub use std::sync::atomic;
    pub use std::thread;
}

#[cfg(shuttle)]
mod real {
    pub use shuttle::sync::Arc;
    pub use shuttle::sync::atomic;
    pub use shuttle::thread;
    use std::ops::{Deref, DerefMut};

    /// `parking_lot`'s shape over shuttle's mutex.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);
    pub type MutexGuard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|e| e.into_inner())
        }
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// `parking_lot`'s shape over shuttle's condition variable.
    #[derive(Debug, Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub fn new() -> Self {
            Condvar(shuttle::sync::Condvar::new())
        }
        /// Waits; the caller's guard is given up and taken again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            replace_guard(guard, |g| self.0.wait(g).unwrap_or_else(|e| e.into_inner()));
        }
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    #[allow(unsafe_code)]
    fn replace_guard<'a, T>(
        slot: &mut MutexGuard<'a, T>,
        f: impl FnOnce(MutexGuard<'a, T>) -> MutexGuard<'a, T>,
    ) {
        // SAFETY: the guard is moved out and a new one is written back before anybody can see
        // the slot again; if `f` panics, the process is a failed model-check run and aborts.
        unsafe {
            let guard = std::ptr::read(slot);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(guard)));
            match result {
                Ok(new) => std::ptr::write(slot, new),
                Err(_) => std::process::abort(),
            }
        }
    }

    /// `parking_lot`'s shape over shuttle's read-write lock.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    pub struct RwLockReadGuard<'a, T>(shuttle::sync::RwLockReadGuard<'a, T>);
    pub struct RwLockWriteGuard<'a, T>(shuttle::sync::RwLockWriteGuard<'a, T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            RwLock(shuttle::sync::RwLock::new(value))
        }
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            RwLockReadGuard(self.0.read().unwrap_or_else(|e| e.into_inner()))
        }
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            RwLockWriteGuard(self.0.write().unwrap_or_else(|e| e.into_inner()))
        }
    }
    impl<T> Deref for RwLockReadGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }
    impl<T> Deref for RwLockWriteGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }
    impl<T> DerefMut for RwLockWriteGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }
}

pub use real::*;
