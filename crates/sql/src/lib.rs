//! Inkling's SQL layer: catalog, analysis, planning, execution, types.
