//! Large values that a run needs: loaded when a first attempt at applying has asked for them.

use super::RunId;
use super::run::{Phase, read_request};
use super::run_job::RunJob;
use crate::device::Completion;
use crate::engine::core::{Actions, Core, Purpose};
use crate::engine::format::image_format::{self, Identity, ImageKind};
use crate::engine::format::record_format::Placement;

impl Core {
    pub(super) fn load_values(&mut self, id: RunId, actions: &mut Actions) {
        if self.renew_owners(id) {
            return self.send_job(id, Vec::new(), actions);
        }
        let phase = std::mem::replace(&mut self.run_mut(id).phase, Phase::Applying);
        let Phase::LoadingValues { mut job, .. } = phase else { return };
        let mut requests = Vec::new();
        let mut missing = None;
        let mut index = 0;
        for block in &job.blocks {
            for (key, _) in &block.values {
                let found = self.directory.exact(block.companion, key);
                match found.and_then(|found| self.directory.block(found).extent()) {
                    Some(extent) => requests.push((index, extent)),
                    None => missing = Some(block.id),
                }
                index += 1;
            }
        }
        if let Some(block) = missing {
            // The others have to ask again.
            self.condemn(id, block, "a large value of it is not in the directory".to_owned());
            job.blocks.iter_mut().for_each(|block| block.values.clear());
            requests.clear();
        }
        for &(index, extent) in &requests {
            let token = self.token(Purpose::ValueRead(id, index));
            actions.requests.push(read_request(extent, token));
        }
        self.run_mut(id).phase = Phase::LoadingValues { pending: requests.len(), job };
    }

    pub(in crate::engine) fn value_read_done(
        &mut self,
        id: RunId,
        index: usize,
        completion: Completion,
    ) {
        let phase = std::mem::replace(&mut self.run_mut(id).phase, Phase::Applying);
        let Phase::LoadingValues { pending, mut job } = phase else { return };
        let (position, value) = job.value_position(index);
        let (space, key) =
            (job.blocks[position].companion, job.blocks[position].values[value].0.clone());
        let body = self.check_value(space, &key, completion);
        match body {
            Ok(body) => job.blocks[position].values[value].1 = body,
            // In another space the value may be sound.
            Err(_) if self.renew_owners(id) => {}
            Err(reason) => self.condemn(id, job.blocks[position].id, reason),
        }
        self.run_mut(id).phase = Phase::LoadingValues { pending: pending - 1, job };
    }

    fn check_value(&self, space: u32, key: &[u8], done: Completion) -> Result<Vec<u8>, String> {
        done.result.map_err(|error| error.to_string())?;
        let buffer = done.buffer.ok_or("no buffer came back")?;
        let found = self.directory.exact(space, key).ok_or("a large value has vanished")?;
        let Placement { image_seq: seq, image_space: space, .. } =
            self.directory.block(found).placement();
        let store = self.config.store;
        let identity = Identity { store, kind: ImageKind::Block, space, seq, key };
        image_format::decode(&buffer, &identity).map(|body| buffer[body].to_vec())
    }
}

impl RunJob {
    /// Block and value with this running number.
    fn value_position(&self, index: usize) -> (usize, usize) {
        let mut left = index;
        for (position, block) in self.blocks.iter().enumerate() {
            if left < block.values.len() {
                return (position, left);
            }
            left -= block.values.len();
        }
        unreachable!("the index of a value that was asked for")
    }
}
