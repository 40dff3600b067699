//! Tests of the requirements on every operating system, on the one that runs them.

#![expect(clippy::disallowed_methods, reason = "tests of real files")]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::time::Duration;

use super::*;

/// A file of `bytes` sevens, and the folder that it lies in.
fn file_of(bytes: usize) -> (File, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("file");
    System::create(&path).expect("created");
    let again = System::create(&path).map_err(|error| error.kind());
    assert_eq!(again, Err(ErrorKind::AlreadyExists));
    let mode = OpenMode { write: true, direct: false, exclusive: false };
    let file = System::open(&path, mode).expect("opened");
    write_all_at(System::write_at, &file, &vec![7; bytes], 0).expect("written");
    (file, folder)
}

#[test]
fn reads_end_with_the_file() {
    let (file, _folder) = file_of(5000);
    let mut bytes = [0; 1000];
    read_exact_at(&file, &mut bytes, 4000).expect("read");
    assert_eq!(bytes, [7; 1000]);
    let behind = read_exact_at(&file, &mut bytes, 4001).map_err(|error| error.kind());
    assert_eq!(behind, Err(ErrorKind::UnexpectedEof));
}

#[test]
fn a_write_without_progress_is_an_error() {
    let (file, _folder) = file_of(1);
    let written = write_all_at(|_, _, _| Ok(0), &file, &[1], 0).map_err(|error| error.kind());
    assert_eq!(written, Err(ErrorKind::WriteZero));
}

#[test]
fn a_durable_write_writes_or_says_that_there_is_none() {
    let (file, _folder) = file_of(5000);
    match write_all_at(System::write_stable_at, &file, &[8; 3000], 1000) {
        Ok(()) => {
            let mut bytes = [0; 5000];
            read_exact_at(&file, &mut bytes, 0).expect("read");
            assert_eq!(bytes[1000..4000], [8; 3000]);
            assert!(bytes[..1000].iter().chain(&bytes[4000..]).all(|byte| *byte == 7));
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
    }
}

#[test]
fn a_reservation_that_fails_leaves_the_length() {
    let (file, _folder) = file_of(5000);
    let refused = System::reserve(&file, 0, 1 << 62).map_err(|error| error.kind());
    assert!(
        matches!(refused, Err(ErrorKind::FileTooLarge | ErrorKind::StorageFull))
            || refused == Err(ErrorKind::Unsupported),
        "{refused:?}"
    );
    assert_eq!(file.metadata().expect("open").len(), 5000);
}

#[test]
fn space_that_is_reserved_is_allocated() {
    let (file, _folder) = file_of(5000);
    if let Err(error) = System::reserve(&file, 0, 1 << 20) {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        return;
    }
    let found = file.metadata().expect("open");
    assert!(System::allocated_bytes(&found).is_none_or(|bytes| bytes >= 1 << 20));
    let mut bytes = [0; 5000];
    read_exact_at(&file, &mut bytes, 0).expect("read");
    assert_eq!(bytes, [7; 5000], "what had space keeps its bytes");
}

#[test]
fn a_file_keeps_its_number_and_a_copy_has_another() {
    let (_file, folder) = file_of(1);
    let path = |name| folder.path().join(name);
    let found = |name| fs::metadata(path(name)).expect("there");
    let first = found("file");
    let Some(number) = System::file_number(&first) else { return };
    fs::rename(path("file"), path("renamed")).expect("renamed");
    fs::copy(path("renamed"), path("copy")).expect("copied");
    assert_eq!(System::file_number(&found("renamed")), Some(number));
    assert_ne!(System::file_number(&found("copy")), Some(number));
    assert_eq!(System::file_system(&found("copy")), System::file_system(&first));
}

#[test]
fn mapped_memory_is_aligned_and_zero() {
    for (bytes, alignment) in [(64 << 10, 64 << 10), (256 << 10, 2 << 20), (4 << 20, 2 << 20)] {
        let memory = Mapping::new(bytes, alignment).expect("memory");
        assert!(memory.start().addr().get().is_multiple_of(alignment));
        // SAFETY: the memory has this length and belongs to the test.
        let content = unsafe { std::slice::from_raw_parts_mut(memory.start().as_ptr(), bytes) };
        assert!(content.iter().all(|byte| *byte == 0));
        content.fill(1);
    }
    assert!(Mapping::new(usize::MAX & !0xffff, 64 << 10).is_none(), "no system has that");
}

#[test]
fn cpu_time_passes_with_work() {
    let Some(before) = System::process_cpu() else { return };
    let mut sum = 0_u64;
    for number in 0..50_000_000 {
        sum = std::hint::black_box(sum.wrapping_mul(31) + number);
    }
    let used = System::process_cpu().expect("as before") - before;
    assert!(used > Duration::from_micros(100) && sum != 0, "{used:?}");
}

#[test]
fn folders_are_synced() {
    let (_file, folder) = file_of(1);
    System::sync_folder(folder.path()).expect("synced");
}

#[test]
fn what_is_opened_for_reading_is_not_written() {
    let (_file, folder) = file_of(4096);
    let mode = OpenMode { write: false, direct: false, exclusive: false };
    let file = System::open(&folder.path().join("file"), mode).expect("opened");
    assert!(System::write_at(&file, &[1], 0).is_err());
    assert_eq!(System::read_at(&file, &mut [0], 4096).expect("at the end"), 0);
}
