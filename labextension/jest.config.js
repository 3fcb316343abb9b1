// Tests are compiled by tsc beforehand: types are checked, and no transformer is needed.
module.exports = {
  roots: ['<rootDir>/.jest'],
  testEnvironment: 'node',
  testMatch: ['**/*.test.js'],
  transform: {}
};
