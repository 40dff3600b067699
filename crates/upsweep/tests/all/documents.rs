//! What documents say in bytes is true.

use std::fmt::Write;

use upsweep::SpaceId;
use upsweep::layers::engine::LoggedUpdate;
use upsweep::layers::engine::format::record_format::encode_updates;
use upsweep::layers::log::format::{
    BATCH_HEADER_BYTES, BatchHeader, NO_DEVICE, RECORD_HEADER_BYTES, check_records, record_seed,
    seal_record,
};
use upsweep::layers::log::{Seq, StreamId};
use upsweep::layers::structures::modifiers::ADD_I64;

const FORMAT: &str = include_str!("../../../../docs/on-disk-format.md");

/// Lines of 16 bytes with their offsets, as in `hexdump -C`, without the text.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (row, chunk) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{:04x}  {}", row * 16, hex.join(" ")).expect("writing to a string");
    }
    text
}

#[test]
fn the_example_of_a_log_batch_is_true() {
    let operand = 1i64.to_le_bytes();
    let update =
        LoggedUpdate { space: SpaceId::new(3), modifier: ADD_I64, key: b"hits", operand: &operand };
    let mut payload = Vec::new();
    encode_updates(&[update], &mut payload);
    let (store, epoch) = (*b"0123456789abcdef", 1);
    let mut record = vec![0; RECORD_HEADER_BYTES];
    record.extend_from_slice(&payload);
    seal_record(&mut record, record_seed(&store, epoch), StreamId::of("updates"), Seq::FIRST, true);
    let header = BatchHeader {
        device: 0,
        skips: false,
        store,
        epoch,
        number: 1,
        first_seq: Seq::FIRST,
        durable: 0,
        previous_epoch: 0,
        page: 0,
        previous_page: 0,
        previous_device: NO_DEVICE,
        devices: 1,
        records: 1,
        record_bytes: record.len() as u32,
        cursors: [1, 0, 0, 0, 0, 0, 0, 0],
        run_first: 1,
    };
    let mut batch = vec![0; BATCH_HEADER_BYTES];
    header.encode(&mut batch);
    batch.extend_from_slice(&record);
    assert_eq!(check_records(&header, &batch), Ok(()));
    let expected = dump(&batch);
    assert!(FORMAT.contains(&expected), "docs/on-disk-format.md should have\n{expected}");
}
