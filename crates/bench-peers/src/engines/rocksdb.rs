//! RocksDB, its current release, built with optimisation and without assertions: increments as
//! operands of a merge operator, which reads nothing, by default and tuned; and as a get and a put,
//! tuned.
//!
//! Configuration by default, and why:
//! - `optimize_level_style_compaction`, the library's own one call for a budget of memory: a
//!   quarter of the limit, which it exceeds by half in the worst case;
//! - a block cache of a quarter of the limit (the default is 32 MiB). Index and filter blocks are
//!   in it, because outside, which is the default, they alone outgrow the limit at high ratios;
//! - files of 64 MiB, the library's default, which that call replaces by an eighth of the budget:
//!   thousands of files at high ratios; no compression, which it sets where it is built in, for
//!   values do not compress;
//! - all else at its defaults: page cache, no filters, two background jobs.
//!
//! Configuration if tuned, and why:
//! - memory: three write buffers of an eighth of the limit (memtables are what makes an LSM tree
//!   batch; one fills while two are flushed), a block cache of a quarter; the rest is buffers of
//!   compactions, the page cache of the write-ahead log, threads and the heap;
//! - direct I/O for reads, flushes and compactions: under this limit the page cache would hold
//!   blocks twice and be driven out by compactions;
//! - partitioned index and filters in the block cache, the top level pinned: whole ones would not
//!   fit beside the data once that is many times the memory;
//! - no filters at the last level (`optimize_filters_for_hits`): what is read is there;
//! - leveled compaction with level sizes from the last one upward: reads and scans meet fewer runs.
//!   In one run each of 40 s of relaxed increments (64 MiB, ratio 8, other work on the machine) it
//!   applied 188 thousand a second with all paid and wrote 195 bytes for each; universal compaction
//!   124 thousand and 139 bytes. On a quiet machine this is worth measuring again;
//! - both processors for flushes and compactions; no compression: values do not compress;
//! - log files are used again (`recycle_log_file_num`): a synchronous write into space that was
//!   written before need not change the file system's journal; the log is handed to the device
//!   after each MiB.
//!
//! In both:
//! - durable: `sync` writes, which RocksDB commits in groups; relaxed: without `sync`;
//! - get and put: a batch reads its records by eight threads before it changes them;
//! - the data set is loaded as ingested files, straight into the last level.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, Direction,
    IngestExternalFileOptions, IteratorMode, MergeOperands, Options, ReadOptions, SstFileWriter,
    WaitForCompactOptions, WriteBatch, WriteOptions, properties,
};

use super::Entry;
use super::changes::{by_key, changed, needs_current};
use super::fetch::fetch;
use super::lsm::Tree;
use super::stripes::Stripes;
use crate::engine::{
    Change, Config, Durability, Engine, Records, Scanned, Turns, Update, VALUE_BYTES, add, counter,
    incremented_from_nothing, value,
};
use crate::failure::Failure;

pub(super) const MERGE: Entry = Entry {
    name: "rocksdb-merge",
    open: |folder, config| open(folder, config, false, None),
    room_factor: 1.8,
    configuration: "increments as merge operands; optimize_level_style_compaction with a quarter \
                    of the limit, but files of 64 MiB (the default; it makes them small) and no \
                    compression; a block cache of a quarter in which index and filters are too \
                    (by default they are outside and outgrow the limit at high ratios); all else \
                    at its defaults",
};

pub(super) const MERGE_TUNED: Entry = Entry {
    name: "rocksdb-merge-tuned",
    open: |folder, config| open(folder, config, true, None),
    room_factor: 2.5,
    configuration: "increments as merge operands; three write buffers of an eighth of the limit, a \
                    block cache of a quarter, direct I/O, partitioned index and filters",
};

pub(super) const READ_MODIFY_WRITE_TUNED: Entry = Entry {
    name: "rocksdb-rmw-tuned",
    open: |folder, config| open(folder, config, true, Some(Stripes::new())),
    room_factor: 2.5,
    configuration: "increments as get and put under locks of the application; otherwise as \
                    rocksdb-merge-tuned",
};

/// Bytes of an entry of a memtable beside its key and its value or operand: a sequence number of 8,
/// lengths, and pointers of its list of which there are 4 to each 3 entries, aligned to 8.
const ENTRY_BYTES: usize = 24;
/// Bytes of an entry of a file beside its key and its operand, about: sequence number, lengths, and
/// its part of the index.
const STORED_ENTRY_BYTES: usize = 10;
/// An operand: how much is added.
const ONE: [u8; 8] = 1u64.to_le_bytes();
/// Levels of a tree, the library's default.
const LEVELS: usize = 7;
/// Bytes of a file: the library's default, and by which a data set is loaded.
const FILE_BYTES: u64 = 64 << 20;

struct RocksDb {
    db: DB,
    options: Options,
    folder: PathBuf,
    /// Locks for read-modify-write; none: increments are merged.
    stripes: Option<Stripes>,
    tree: Tree,
}

fn open(
    folder: &Path,
    config: &Config,
    is_tuned: bool,
    stripes: Option<Stripes>,
) -> Result<Box<dyn Engine>, Failure> {
    let memory_bytes = usize::try_from(config.memory_bytes).unwrap_or(usize::MAX);
    let mut options = if is_tuned { tuned(memory_bytes) } else { usual(memory_bytes) };
    options.create_if_missing(true);
    options.set_merge_operator("count", merge_full, merge_partial);
    let written_bytes = if stripes.is_some() { VALUE_BYTES } else { ONE.len() };
    let entry_bytes = usize::from(config.key_bytes) + written_bytes;
    let tree = Tree {
        // Three of an eighth; by default six of a quarter of the budget, which is a quarter.
        buffer_bytes: config.memory_bytes / 8 * 3,
        buffered_bytes: (entry_bytes + ENTRY_BYTES) as u64,
        data_bytes: config.data_bytes,
        stored_bytes: (entry_bytes + STORED_ENTRY_BYTES) as u64,
    };
    let db = DB::open(&options, folder.join("db")).map_err(Failure::engine)?;
    Ok(Box::new(RocksDb { db, options, folder: folder.to_owned(), stripes, tree }))
}

/// The library's defaults, in this memory.
fn usual(memory_bytes: usize) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(memory_bytes / 4));
    blocks.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&blocks);
    options.optimize_level_style_compaction(memory_bytes / 4);
    options.set_target_file_size_base(FILE_BYTES);
    options.set_compression_per_level(&[DBCompressionType::None; LEVELS]);
    options
}

fn tuned(memory_bytes: usize) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(memory_bytes / 4));
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_top_level_index_and_filter(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&blocks);
    options.set_optimize_filters_for_hits(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(memory_bytes / 8);
    options.set_max_write_buffer_number(3);
    options.set_max_background_jobs(3);
    options.set_max_subcompactions(2);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_compaction_readahead_size(memory_bytes / 256);
    options.set_target_file_size_base(memory_bytes as u64 / 4);
    options.set_max_bytes_for_level_base(memory_bytes as u64);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_enable_pipelined_write(true);
    options.set_recycle_log_file_num(4);
    options.set_wal_bytes_per_sync(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_keep_log_file_num(1);
    options
}

/// Adds operands to the value, or makes one of them.
fn merge_full(_key: &[u8], current: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let sum = operands.iter().map(counter).fold(0u64, u64::wrapping_add);
    match current {
        Some(current) => {
            let mut value = current.to_vec();
            add(&mut value, sum);
            Some(value)
        }
        None => {
            let mut value = incremented_from_nothing();
            add(&mut value, sum.wrapping_sub(1));
            Some(value.to_vec())
        }
    }
}

/// Makes one operand of several.
fn merge_partial(_key: &[u8], _: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let sum = operands.iter().map(counter).fold(0u64, u64::wrapping_add);
    Some(sum.to_le_bytes().to_vec())
}

impl RocksDb {
    fn ingest(&self, file: &Path) -> Result<(), Failure> {
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        self.db.ingest_external_file_opts(&options, vec![file]).map_err(Failure::engine)
    }

    /// A batch in which increments are operands.
    fn merges(updates: &[Update<'_>]) -> WriteBatch {
        let mut batch = WriteBatch::default();
        for update in updates {
            match update.change {
                Change::Increment => batch.merge(update.key, ONE),
                Change::Put(stamp) => batch.put(update.key, value(stamp)),
                Change::Delete => batch.delete(update.key),
            }
        }
        batch
    }

    /// A batch of the values after the updates, all keys of which are locked.
    fn values(&self, updates: &[Update<'_>]) -> Result<WriteBatch, Failure> {
        let mut updates = updates.to_vec();
        // An error shows again below.
        fetch(&updates, |key| drop(self.db.get_pinned(key)));
        let groups: Vec<&[Update<'_>]> = by_key(&mut updates).collect();
        let keys = groups.iter().filter(|group| needs_current(group));
        let keys: Vec<&[u8]> = keys.map(|group| group[0].key).collect();
        let mut found = self.db.batched_multi_get_pinned(keys, true).into_iter();
        let mut batch = WriteBatch::default();
        for group in &groups {
            let current = if needs_current(group) {
                found.next().transpose().map_err(Failure::engine)?.flatten()
            } else {
                None
            };
            let key = group[0].key;
            match changed(group, current.as_deref()) {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        Ok(batch)
    }
}

impl Engine for RocksDb {
    fn load(&self, records: Records<'_>) -> Result<(), Failure> {
        let file = self.folder.join("load.sst");
        let mut records = records.peekable();
        while records.peek().is_some() {
            let mut writer = SstFileWriter::create(&self.options);
            writer.open(&file).map_err(Failure::engine)?;
            let mut bytes = 0;
            for (key, value) in records.by_ref() {
                writer.put(&key, value).map_err(Failure::engine)?;
                bytes += (key.len() + VALUE_BYTES) as u64;
                if bytes >= FILE_BYTES {
                    break;
                }
            }
            writer.finish().map_err(Failure::engine)?;
            self.ingest(&file)?;
        }
        Ok(())
    }

    fn apply(&self, updates: &[Update<'_>], durability: Durability) -> Result<(), Failure> {
        let mut how = WriteOptions::default();
        how.set_sync(durability == Durability::Durable);
        let locked = self.stripes.as_ref().map(|stripes| stripes.lock(updates));
        let batch = if locked.is_some() { self.values(updates)? } else { Self::merges(updates) };
        self.db.write_opt(&batch, &how).map_err(Failure::engine)
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>, Failure> {
        let value = self.db.get_pinned(key).map_err(Failure::engine)?;
        Ok(value.map(|value| counter(&value)))
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Scanned, Failure> {
        let mut how = ReadOptions::default();
        how.fill_cache(count <= 10_000);
        if count > 10_000 {
            how.set_readahead_size(1 << 20);
        }
        let mode = IteratorMode::From(from, Direction::Forward);
        let mut scanned = Scanned::default();
        let records = self.db.iterator_opt(mode, how);
        for record in records.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            scanned.add(&record.map_err(Failure::engine)?.1);
        }
        Ok(scanned)
    }

    fn quiesce(&self) -> Result<(), Failure> {
        let mut how = WaitForCompactOptions::default();
        how.set_flush(true);
        self.db.wait_for_compact(&how).map_err(Failure::engine)
    }

    fn turns(&self, increments: u64) -> Option<Turns> {
        Some(self.tree.turns(increments))
    }

    fn statistics(&self) -> BTreeMap<String, f64> {
        let names = [
            ("tables_bytes", properties::TOTAL_SST_FILES_SIZE),
            ("table_readers_bytes", properties::ESTIMATE_TABLE_READERS_MEM),
            ("block_cache_bytes", properties::BLOCK_CACHE_USAGE),
            ("memtables_bytes", properties::SIZE_ALL_MEM_TABLES),
            ("pending_compaction_bytes", properties::ESTIMATE_PENDING_COMPACTION_BYTES),
        ];
        let number = |name| self.db.property_int_value(name).ok().flatten();
        let numbers = names.into_iter().filter_map(|(key, name)| Some((key, number(name)? as f64)));
        numbers.map(|(name, number)| (name.to_owned(), number)).collect()
    }
}
