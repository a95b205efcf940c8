export default function Search(_: { q?: string; id?: string }) { return <p>Search</p>; }
