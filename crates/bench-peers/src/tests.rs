//! Every engine that is built in goes through tiny cells.
