//! A file system in user space that keeps only what was synced, if it must: one flat folder, in
//! memory, whose content a power cut at any moment can be asked for.
//!
//! Fault model: a write is seen by reads at once; it is stable when a sync of its file has
//! succeeded that came after it. Of what is not, a power cut keeps any sectors and loses the
//! others. Names are stable at once.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

const SECTOR_BYTES: usize = 512;
/// Nothing is cached by the kernel beyond a call.
const TTL: Duration = Duration::ZERO;
/// Number of the first file; the folder is number 1.
const FIRST_FILE: u64 = 2;

/// A file, and what is stable of it.
#[derive(Clone, Default)]
struct File {
    content: Vec<u8>,
    /// What sectors held when they were last stable, of those that were written to since.
    lost: BTreeMap<usize, [u8; SECTOR_BYTES]>,
    stable_bytes: usize,
}

impl File {
    fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        let sectors = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        for sector in sectors {
            let mut before = [0; SECTOR_BYTES];
            let start = (sector * SECTOR_BYTES).min(self.content.len());
            let there = &self.content[start..(start + SECTOR_BYTES).min(self.content.len())];
            before[..there.len()].copy_from_slice(there);
            self.lost.entry(sector).or_insert(before);
        }
        self.content.resize(self.content.len().max(end), 0);
        self.content[offset..end].copy_from_slice(data);
    }

    fn sync(&mut self) {
        self.lost.clear();
        self.stable_bytes = self.content.len();
    }

    /// What a power cut leaves; `keeps` decides of each sector that is not stable.
    fn after_cut(&self, keeps: &mut impl FnMut() -> bool) -> Vec<u8> {
        let mut left = self.content.clone();
        for (sector, before) in &self.lost {
            let start = sector * SECTOR_BYTES;
            if !keeps() && start < left.len() {
                let end = (start + SECTOR_BYTES).min(left.len());
                left[start..end].copy_from_slice(&before[..end - start]);
            }
        }
        if left.len() > self.stable_bytes && !keeps() {
            left.truncate(self.stable_bytes);
        }
        left
    }
}

#[derive(Default)]
struct State {
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, File>,
    syncs: u64,
}

/// The file system; clones are the same one.
#[derive(Clone, Default)]
pub struct Lossy(Arc<Mutex<State>>);

/// A mounted file system, until it is dropped.
pub struct Mounted {
    _session: fuser::BackgroundSession,
}

impl Lossy {
    /// Mounts it; `Err` where the machine has no FUSE for us.
    pub fn mount(&self, folder: &Path) -> std::io::Result<Mounted> {
        let session = fuser::spawn_mount(self.clone(), folder, &Config::default())?;
        Ok(Mounted { _session: session })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a file was synced.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// The files as a power cut at this moment leaves them.
    pub fn cut(&self, mut keeps: impl FnMut() -> bool) -> Vec<(String, Vec<u8>)> {
        let state = self.state();
        let of = |(name, number): (&String, &u64)| {
            (name.clone(), state.files[number].after_cut(&mut keeps))
        };
        state.names.iter().map(of).collect()
    }
}

fn attributes(number: u64, file: Option<&File>) -> FileAttr {
    let size = file.map_or(0, |file| file.content.len() as u64);
    FileAttr {
        ino: INodeNo(number),
        size,
        blocks: size.div_ceil(SECTOR_BYTES as u64),
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: if file.is_some() { FileType::RegularFile } else { FileType::Directory },
        perm: if file.is_some() { 0o640 } else { 0o750 },
        nlink: 1,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl State {
    fn attributes(&self, number: u64) -> Option<FileAttr> {
        if number == u64::from(INodeNo::ROOT) {
            return Some(attributes(number, None));
        }
        Some(attributes(number, Some(self.files.get(&number)?)))
    }

    fn named(&self, name: &OsStr) -> Option<u64> {
        self.names.get(name.to_str()?).copied()
    }
}

impl Filesystem for Lossy {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // As real file systems in user space have it: direct writes of io_uring go their own way.
        let _granted = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.state();
        match state.named(name).and_then(|number| state.attributes(number)) {
            Some(found) => reply.entry(&TTL, &found, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.state().attributes(u64::from(ino)) {
            Some(found) => reply.attr(&TTL, &found),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state();
        if let Some(size) = size
            && let Some(file) = state.files.get_mut(&u64::from(ino))
        {
            file.content.resize(size as usize, 0);
            file.lost.retain(|sector, _| sector * SECTOR_BYTES < size as usize);
            file.stable_bytes = file.stable_bytes.min(size as usize);
        }
        match state.attributes(u64::from(ino)) {
            Some(found) => reply.attr(&TTL, &found),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = name.to_str().and_then(|name| self.state().names.remove(name));
        if removed.is_some() { reply.ok() } else { reply.error(Errno::ENOENT) }
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _new_parent: INodeNo,
        new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        let (Some(number), Some(new_name)) = (state.named(name), new_name.to_str()) else {
            return reply.error(Errno::ENOENT);
        };
        state.names.retain(|_, named| *named != number);
        state.names.insert(new_name.to_owned(), number);
        reply.ok();
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut state = self.state();
        let Some(name) = name.to_str() else { return reply.error(Errno::EINVAL) };
        let number = state.files.last_key_value().map_or(FIRST_FILE, |(last, _)| last + 1);
        state.files.insert(number, File::default());
        state.names.insert(name.to_owned(), number);
        let made = attributes(number, Some(&File::default()));
        reply.created(&TTL, &made, Generation(0), FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state();
        let Some(file) = state.files.get(&u64::from(ino)) else {
            return reply.error(Errno::ENOENT);
        };
        let start = (offset as usize).min(file.content.len());
        let end = (start + size as usize).min(file.content.len());
        reply.data(&file.content[start..end]);
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.state().files.get_mut(&u64::from(ino)) {
            Some(file) => {
                file.write(offset as usize, data);
                reply.written(data.len() as u32);
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn flush(&self, _: &Request, _ino: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let mut state = self.state();
        state.syncs += 1;
        state.files.get_mut(&u64::from(ino)).into_iter().for_each(File::sync);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let state = self.state();
        let dots = [".", ".."].map(|name| (u64::from(ino), FileType::Directory, name.to_owned()));
        let files = state.names.iter();
        let files = files.map(|(name, number)| (*number, FileType::RegularFile, name.clone()));
        let entries = dots.into_iter().chain(files).zip(1..).skip(offset as usize);
        for ((number, kind, name), next) in entries {
            if reply.add(INodeNo(number), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        match state.files.get_mut(&u64::from(ino)) {
            Some(file) if mode == 0 => {
                let end = (offset + length) as usize;
                file.content.resize(file.content.len().max(end), 0);
                reply.ok();
            }
            Some(_) => reply.error(Errno::EOPNOTSUPP),
            None => reply.error(Errno::ENOENT),
        }
    }
}
